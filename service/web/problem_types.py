"""The problem types the service answers with, each with a page that explains it.

The slug is part of the contract: `type` of a problem document is `/problems/<slug>`.
"""

from dataclasses import dataclass

__all__ = [
    "FOREIGN_ORIGIN",
    "IDEMPOTENCY_KEY_IN_USE",
    "IDEMPOTENCY_KEY_REUSED",
    "INSUFFICIENT_SCOPE",
    "INTERNAL_ERROR",
    "INVALID_BODY",
    "INVALID_INPUT",
    "INVALID_PARAMETERS",
    "MALFORMED_BODY",
    "MALFORMED_REQUEST",
    "METHOD_NOT_ALLOWED",
    "MISDIRECTED_REQUEST",
    "NOT_ACCEPTABLE",
    "NOT_FOUND",
    "NO_SUCH_ROUTE",
    "OVERLOADED",
    "PAYLOAD_TOO_LARGE",
    "PRECONDITION_FAILED",
    "PRECONDITION_REQUIRED",
    "PROBLEM_TYPES",
    "RATE_LIMIT_EXCEEDED",
    "REQUEST_HEAD_TOO_LARGE",
    "REQUEST_TIMEOUT",
    "SECRET_NOT_KEPT",
    "SUPERSEDED",
    "TOO_MANY_AT_ONCE",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "UNLIKE_PLANS",
    "UNSUPPORTED_MEDIA_TYPE",
    "WORK_BUDGET_EXCEEDED",
    "ProblemType",
    "problem_page",
]


@dataclass(frozen=True, slots=True)
class ProblemType:
    """One kind of refusal: what it means and what a caller can do about it."""

    slug: str
    status: int
    title: str
    meaning: str
    remedy: str

    @property
    def uri(self) -> str:
        """The `type` of its problem documents, and where its page is served."""
        return f"/problems/{self.slug}"


MALFORMED_REQUEST = ProblemType(
    "malformed-request",
    400,
    "The request is malformed",
    "The request breaks the rules of HTTP: a bad Host header, or a body that is not the multipart "
    "form its content type promises.",
    "Send the request with an ordinary HTTP client and leave its headers as it makes them.",
)
MALFORMED_BODY = ProblemType(
    "malformed-body",
    400,
    "The body is not JSON the service reads",
    "The body can't be read as JSON: a syntax error, NaN or Infinity, bytes that are not UTF-8, a "
    "surrogate without its partner, or more levels of nesting than are allowed.",
    "Send one JSON object in UTF-8. Numbers are finite; nesting is at most 64 levels deep.",
)
INVALID_BODY = ProblemType(
    "invalid-body",
    400,
    "The body does not match its schema",
    "The body is JSON but does not have the fields, types or bounds that the schema of this route "
    "asks for, or an object in it gives a key twice. Types are strict: the string 2 is not the "
    "integer 2, though the number 2.0 is.",
    "Every fault is listed with a JSON Pointer into the body. The schema is in /openapi.json.",
)
INVALID_PARAMETERS = ProblemType(
    "invalid-parameters",
    400,
    "A parameter of the URL or a header can't be used",
    "A query parameter is unknown, repeated or out of bounds, a name in the path is not a name, or "
    "a header that matters here can't be read.",
    "Every fault is listed; `in` says whether it is in the query, the path or a header, and the "
    "pointer is a slash followed by the parameter's name. A cursor is used as it was given.",
)
UNAUTHENTICATED = ProblemType(
    "unauthenticated",
    401,
    "A valid token is needed",
    "The request has no token, or one that is unknown, expired, revoked or not a token at all; the "
    "answer does not say which.",
    "Send the header `Authorization: Bearer stagefare_...`. A token is made with `stagefare tokens "
    "create` on the machine of the service, or by an admin of the team with POST /v1/tokens.",
)
INSUFFICIENT_SCOPE = ProblemType(
    "insufficient-scope",
    403,
    "The token does not allow this",
    "The token is valid, but the route needs a scope that it does not have: `read` for reading and "
    "for calculations, `write` to store, import and archive documents, `admin` for tokens.",
    "Use a token with the scope named in the detail. A scope holds no other one.",
)
FOREIGN_ORIGIN = ProblemType(
    "foreign-origin",
    403,
    "A page of another origin sent the request",
    "While the service is open, before the first token is made, it does not serve requests that "
    "the pages of other origins make a browser send.",
    "Send the request from a program, or make a token and send that.",
)
NO_SUCH_ROUTE = ProblemType(
    "no-such-route",
    404,
    "There is nothing at this URL",
    "No route of the service matches the path.",
    "The routes are listed in /openapi.json.",
)
NOT_FOUND = ProblemType(
    "not-found",
    404,
    "What the URL names is not stored",
    "The route exists, but nothing is stored under the name, revision or digest in the path. "
    "Archived documents are found by name and revision only.",
    "List what is stored, for example with GET /v1/plans.",
)
METHOD_NOT_ALLOWED = ProblemType(
    "method-not-allowed",
    405,
    "The URL does not take this method",
    "Something is at this URL, but not under this method.",
    "The Allow header lists the methods that are.",
)
REQUEST_TIMEOUT = ProblemType(
    "request-timeout",
    408,
    "The request took too long to arrive",
    "The headers or the body of the request were not there in time. A file has a minute.",
    "Send it again, all at once, on a new connection.",
)
NOT_ACCEPTABLE = ProblemType(
    "not-acceptable",
    406,
    "No acceptable format",
    "The Accept header excludes the one format this URL answers in.",
    "Leave the header out, or accept the format named in the detail. Other formats have URLs of "
    "their own, with a suffix such as .svg or .csv.",
)
SUPERSEDED = ProblemType(
    "superseded",
    409,
    "Made by an earlier cost model",
    "What is stored was computed by an earlier version of the cost model, and this part of it is "
    "not stored but computed on demand. The current version could give other numbers.",
    "POST the plan to /v1/estimates again; the new estimate has all its parts.",
)
IDEMPOTENCY_KEY_IN_USE = ProblemType(
    "idempotency-key-in-use",
    409,
    "The first request with this key is not finished",
    "Another request with the same Idempotency-Key came earlier and is still being answered, or "
    "its process has died, in which case the key is free again a minute after it came.",
    "Send the same request again after the seconds named in the Retry-After header: it gets the "
    "answer of the first one.",
)
SECRET_NOT_KEPT = ProblemType(
    "secret-not-kept",
    409,
    "Done before, and the answer held a secret",
    "The first request with this Idempotency-Key was answered with a secret, which is shown once "
    "and stored nowhere. Nothing was made this time.",
    "If that answer is lost, revoke what the detail names and make another one, with another key.",
)
PRECONDITION_FAILED = ProblemType(
    "precondition-failed",
    412,
    "The stored version is not the expected one",
    "If-Match or If-None-Match does not hold, so nothing was changed or sent.",
    "The ETag header of this answer is the version that is stored (absent when nothing is). Look "
    "at it and send the request again with that tag.",
)
PAYLOAD_TOO_LARGE = ProblemType(
    "payload-too-large",
    413,
    "The body is too large",
    "The body is larger than this route reads: 1 MiB, 4 MiB for a batch, 16 MiB for an import and "
    "for a topology, a model or a profile.",
    "Send less, for example by writing a repeated block once.",
)
REQUEST_HEAD_TOO_LARGE = ProblemType(
    "request-head-too-large",
    431,
    "The URL and headers are too large",
    "The request line and the headers together are larger than the service reads, or there are too "
    "many headers.",
    "Leave out what is not needed. Cookies mean nothing here.",
)
UNSUPPORTED_MEDIA_TYPE = ProblemType(
    "unsupported-media-type",
    415,
    "The body's format is not read here",
    "The Content-Type header names a format this route does not read, or is missing.",
    "Send application/json; imports take multipart/form-data.",
)
MISDIRECTED_REQUEST = ProblemType(
    "misdirected-request",
    421,
    "The service does not answer under this name",
    "While the service is open, before the first token is made, it answers only to the names of "
    "the machine itself in the Host header, so that no web page can reach it under another name.",
    "Use http://127.0.0.1 or http://localhost with the port, or make a token and send that.",
)
IDEMPOTENCY_KEY_REUSED = ProblemType(
    "idempotency-key-reused",
    422,
    "The key belongs to another request",
    "The Idempotency-Key was used by this team within the last 24 hours for another route or with "
    "another body. Nothing was done.",
    "Make a new key for each request that is not a repetition, for example a random UUID.",
)
INVALID_INPUT = ProblemType(
    "invalid-input",
    422,
    "Well-formed, but it can't be computed",
    "The request matches its schema, but what it says does not fit together: an unknown "
    "reference, an illegal schedule, indivisible degrees, a profile without the point that is "
    "needed, a stage without layers, the cursor of another list, and the like.",
    "Every fault found is listed with its place; each detail says what would be right.",
)
UNLIKE_PLANS = ProblemType(
    "unlike-plans",
    422,
    "The plans do not do the same work",
    "The contracts of the plans differ, or only some of them say a term: batch, sequence lengths, "
    "model, precision, when weights change, and what else decides what is learned. Their times "
    "are no answer to which plan is faster. Nothing was compared.",
    "Each term that differs is listed with both values. Make the plans alike, or name the terms in "
    "allow_unlike: the answer then says first in what they differ.",
)
WORK_BUDGET_EXCEEDED = ProblemType(
    "work-budget-exceeded",
    422,
    "More work than one request may ask for",
    "The work of the request is known before it is done, and it is beyond the budget. Nothing was "
    "computed.",
    "The detail names the limit. Ask for fewer microbatches, stages or points.",
)
PRECONDITION_REQUIRED = ProblemType(
    "precondition-required",
    428,
    "The request has to say which version it means",
    "Archiving takes a document away from everybody, so the request names the version it has seen; "
    "otherwise a revision stored in the meantime would be archived unseen. Nothing was changed.",
    "Send If-Match with the ETag of the document, or If-Match: * for whatever is stored.",
)
RATE_LIMIT_EXCEEDED = ProblemType(
    "rate-limit-exceeded",
    429,
    "Too many requests in a minute",
    "The token (or the address, while the service is open) has sent more requests than it may. The "
    "RateLimit-Policy header of every answer says how many these are, the RateLimit header how "
    "many are left. Nothing was done.",
    "Send the request again after the seconds named in the Retry-After header. The operator of the "
    "service sets the limit with STAGEFARE_REQUESTS_PER_MINUTE.",
)
TOO_MANY_AT_ONCE = ProblemType(
    "too-many-at-once",
    429,
    "Too much at once",
    "The token (or the address, while the service is open) has as many calculations running or "
    "waiting as it may, or as much work in them, or as many bytes of requests that are being "
    "received or worked on. Nothing was computed or stored.",
    "Wait for the answers to earlier requests before sending more, or send the request again after "
    "the seconds named in the Retry-After header, when it is expected to fit. The operator of the "
    "service sets the limits with STAGEFARE_CALCULATIONS_PER_CALLER, "
    "STAGEFARE_WORK_SECONDS_PER_CALLER and STAGEFARE_BODY_MIB_PER_CALLER.",
)
INTERNAL_ERROR = ProblemType(
    "internal-error",
    500,
    "The service failed",
    "Something the service did not foresee. It has been logged under the request's id.",
    "Report it with the `request_id` of this answer.",
)
OVERLOADED = ProblemType(
    "overloaded",
    503,
    "The service has more to do than it can",
    "So many calculations of all callers are waiting, or so much work in them, that more would "
    "only wait with them; or as many bytes of requests are held, or as many connections open, as "
    "may be. It was refused at once; nothing was computed or stored.",
    "Send the request again after the seconds named in the Retry-After header, when it is expected "
    "to fit. The operator of the service sets the limits with STAGEFARE_WAITING_CALCULATIONS, "
    "STAGEFARE_WORK_SECONDS, STAGEFARE_BODY_MIB and STAGEFARE_CONNECTIONS.",
)
UNAVAILABLE = ProblemType(
    "unavailable",
    503,
    "The service can't answer at the moment",
    "The database does not answer or is busy, or the service is still starting.",
    "Try again after the seconds named in the Retry-After header. /readyz says when it is ready.",
)

PROBLEM_TYPES = (
    MALFORMED_REQUEST,
    MALFORMED_BODY,
    INVALID_BODY,
    INVALID_PARAMETERS,
    UNAUTHENTICATED,
    INSUFFICIENT_SCOPE,
    FOREIGN_ORIGIN,
    NO_SUCH_ROUTE,
    NOT_FOUND,
    METHOD_NOT_ALLOWED,
    NOT_ACCEPTABLE,
    REQUEST_TIMEOUT,
    SUPERSEDED,
    IDEMPOTENCY_KEY_IN_USE,
    SECRET_NOT_KEPT,
    PRECONDITION_FAILED,
    PAYLOAD_TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    MISDIRECTED_REQUEST,
    IDEMPOTENCY_KEY_REUSED,
    REQUEST_HEAD_TOO_LARGE,
    INVALID_INPUT,
    UNLIKE_PLANS,
    WORK_BUDGET_EXCEEDED,
    PRECONDITION_REQUIRED,
    RATE_LIMIT_EXCEEDED,
    TOO_MANY_AT_ONCE,
    INTERNAL_ERROR,
    OVERLOADED,
    UNAVAILABLE,
)


def problem_page(problem_type: ProblemType) -> str:
    """The page of a problem type, as Markdown that also reads well as plain text."""
    return (
        f"# {problem_type.title}\n\n"
        f"`{problem_type.uri}`, status {problem_type.status}\n\n"
        f"{problem_type.meaning}\n\n"
        f"## What to do\n\n"
        f"{problem_type.remedy}\n\n"
        "The whole contract, to read and to try: /reference\n"
    )
