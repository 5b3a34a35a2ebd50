"""Teams, documents with revisions, what belongs to a revision, and stored estimates."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Ordered by code point on both databases.
text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
moment = sa.DateTime(timezone=True)

REVISION_KEY = ["revisions.team", "revisions.kind", "revisions.name", "revisions.number"]


def upgrade() -> None:
    op.create_table(
        "teams",
        _required("name", text),
        _required("created_at", moment),
        sa.CheckConstraint("length(name) BETWEEN 1 AND 63", name=op.f("ck_teams_name_length")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_teams")),
    )
    op.create_table(
        "documents",
        _required("team", text),
        _required("kind", text),
        _required("name", text),
        _required("newest_number", sa.BigInteger()),
        _optional("archived_at", moment),
        _required("created_at", moment),
        sa.CheckConstraint("length(name) BETWEEN 1 AND 63", name=op.f("ck_documents_name_length")),
        sa.CheckConstraint(
            "newest_number >= 0", name=op.f("ck_documents_newest_number_not_negative")
        ),
        sa.ForeignKeyConstraint(["team"], ["teams.name"], name=op.f("fk_documents_teams")),
        sa.PrimaryKeyConstraint("team", "kind", "name", name=op.f("pk_documents")),
    )
    op.create_table(
        "revisions",
        _required("team", text),
        _required("kind", text),
        _required("name", text),
        _required("number", sa.BigInteger()),
        _required("digest", text),
        _required("content", sa.LargeBinary()),
        _required("summary", sa.JSON()),
        _required("warnings", sa.JSON()),
        _required("created_at", moment),
        sa.CheckConstraint("number >= 1", name=op.f("ck_revisions_number_positive")),
        sa.ForeignKeyConstraint(
            ["team", "kind", "name"],
            ["documents.team", "documents.kind", "documents.name"],
            name=op.f("fk_revisions_documents"),
        ),
        sa.PrimaryKeyConstraint("team", "kind", "name", "number", name=op.f("pk_revisions")),
    )
    op.create_table(
        "document_pins",
        _required("team", text),
        _required("kind", text),
        _required("name", text),
        _required("number", sa.BigInteger()),
        _required("pinned_kind", text),
        _required("pinned_name", text),
        _required("pinned_number", sa.BigInteger()),
        sa.ForeignKeyConstraint(
            ["team", "kind", "name", "number"],
            REVISION_KEY,
            name=op.f("fk_document_pins_revisions"),
        ),
        sa.ForeignKeyConstraint(
            ["team", "pinned_kind", "pinned_name", "pinned_number"],
            REVISION_KEY,
            name=op.f("fk_document_pins_pinned_revisions"),
        ),
        sa.PrimaryKeyConstraint(
            "team",
            "kind",
            "name",
            "number",
            "pinned_kind",
            "pinned_name",
            "pinned_number",
            name=op.f("pk_document_pins"),
        ),
    )
    op.create_index(
        "ix_document_pins_pinned",
        "document_pins",
        ["team", "pinned_kind", "pinned_name", "pinned_number"],
    )
    op.create_table(
        "topology_summaries",
        _required("team", text),
        _required("kind", text),
        _required("name", text),
        _required("number", sa.BigInteger()),
        _required("hosts", sa.BigInteger()),
        _required("devices", sa.BigInteger()),
        _required("links", sa.BigInteger()),
        _required("link_kinds", sa.JSON()),
        sa.CheckConstraint(
            "kind = 'topologies'", name=op.f("ck_topology_summaries_kind_is_topologies")
        ),
        sa.CheckConstraint(
            "hosts >= 0 AND devices >= 0 AND links >= 0",
            name=op.f("ck_topology_summaries_counts_not_negative"),
        ),
        sa.ForeignKeyConstraint(
            ["team", "kind", "name", "number"],
            REVISION_KEY,
            name=op.f("fk_topology_summaries_revisions"),
        ),
        sa.PrimaryKeyConstraint(
            "team", "kind", "name", "number", name=op.f("pk_topology_summaries")
        ),
    )
    op.create_table(
        "measurements",
        _required("team", text),
        _required("profile", text),
        _required("profile_revision", sa.BigInteger()),
        _required("position", sa.BigInteger()),
        _required("kind", text),
        _required("layer", text),
        _optional("device", text),
        _optional("precision", text),
        _required("microbatch_size", sa.BigInteger()),
        _optional("sequence_length", sa.BigInteger()),
        _required("tensor_parallel", sa.BigInteger()),
        _required("recompute", text),
        _required("forward_seconds", sa.Double()),
        _optional("backward_seconds", sa.Double()),
        _optional("backward_input_seconds", sa.Double()),
        _optional("backward_weight_seconds", sa.Double()),
        _optional("recompute_seconds", sa.Double()),
        _optional("tensor_parallel_communication_seconds", sa.Double()),
        _optional("saved_activation_bytes", sa.BigInteger()),
        _optional("workspace_bytes", sa.BigInteger()),
        _optional("samples", sa.BigInteger()),
        _optional("relative_deviation", sa.Double()),
        sa.CheckConstraint("kind = 'profiles'", name=op.f("ck_measurements_kind_is_profiles")),
        sa.CheckConstraint("position >= 0", name=op.f("ck_measurements_position_not_negative")),
        sa.CheckConstraint(
            "microbatch_size >= 1 AND sequence_length >= 1 AND tensor_parallel >= 1",
            name=op.f("ck_measurements_shape_positive"),
        ),
        sa.CheckConstraint(
            "saved_activation_bytes >= 0 AND workspace_bytes >= 0 AND samples >= 0",
            name=op.f("ck_measurements_counts_not_negative"),
        ),
        *_finite_and_not_negative(
            "forward_seconds",
            "backward_seconds",
            "backward_input_seconds",
            "backward_weight_seconds",
            "recompute_seconds",
            "tensor_parallel_communication_seconds",
            "relative_deviation",
        ),
        sa.ForeignKeyConstraint(
            ["team", "kind", "profile", "profile_revision"],
            REVISION_KEY,
            name=op.f("fk_measurements_revisions"),
        ),
        sa.PrimaryKeyConstraint(
            "team", "profile", "profile_revision", "position", name=op.f("pk_measurements")
        ),
    )
    op.create_index(
        "ix_measurements_layer",
        "measurements",
        ["team", "layer", "profile", "profile_revision", "position"],
    )
    op.create_index(
        "ix_measurements_device",
        "measurements",
        ["team", "device", "profile", "profile_revision", "position"],
    )
    op.create_table(
        "estimates",
        _required("team", text),
        _required("digest", text),
        _required("model_version", text),
        _required("request", sa.LargeBinary()),
        _required("answer", sa.LargeBinary()),
        _required("created_at", moment),
        sa.ForeignKeyConstraint(["team"], ["teams.name"], name=op.f("fk_estimates_teams")),
        sa.PrimaryKeyConstraint("team", "digest", name=op.f("pk_estimates")),
    )


def downgrade() -> None:
    op.drop_table("estimates")
    op.drop_table("measurements")
    op.drop_table("topology_summaries")
    op.drop_table("document_pins")
    op.drop_table("revisions")
    op.drop_table("documents")
    op.drop_table("teams")


def _required(name: str, type_: sa.types.TypeEngine[Any]) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=False)


def _optional(name: str, type_: sa.types.TypeEngine[Any]) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=True)


def _finite_and_not_negative(*columns: str) -> Sequence[sa.CheckConstraint]:
    return [
        sa.CheckConstraint(
            f"{column} BETWEEN 0 AND 1e300", name=op.f(f"ck_measurements_{column}_range")
        )
        for column in columns
    ]
