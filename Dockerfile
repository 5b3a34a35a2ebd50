# The service in an image without a compiler, a package manager's cache or a right to write.
#
#   docker build --tag stagefare:0.2.0 .
#
# It listens on all addresses, so it starts only once a token has been made; docker-compose.yml and
# README.md show how. Without STAGEFARE_DATABASE_URL it keeps an SQLite file in /var/lib/stagefare.

FROM python:3.11.14-slim-bookworm AS build
WORKDIR /build
COPY requirements/runtime.txt requirements/
# Everything is fetched here and checked against its hash; from here on nothing reaches for the network.
RUN python -m venv /opt/build \
    && /opt/build/bin/pip download --no-cache-dir --disable-pip-version-check --require-hashes \
       --only-binary :all: --dest /wheels --requirement requirements/runtime.txt \
    && /opt/build/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes \
       --no-index -f /wheels --requirement requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY service service
COPY migrations migrations
COPY openapi openapi
COPY examples examples
# What the project needs to run goes into an environment of its own: no pip, no build backend.
RUN /opt/build/bin/pip wheel --no-cache-dir --disable-pip-version-check --no-index --no-deps \
       --no-build-isolation --wheel-dir /wheels . \
    && python -m venv --without-pip /opt/stagefare \
    && /opt/build/bin/pip --python /opt/stagefare/bin/python install --no-cache-dir \
       --disable-pip-version-check --no-index -f /wheels /wheels/stagefare-*.whl

FROM python:3.11.14-slim-bookworm
RUN groupadd --gid 10001 stagefare \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent \
       --shell /usr/sbin/nologin stagefare \
    && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/stagefare
COPY --from=build /opt/stagefare /opt/stagefare
# The kernels are compiled at each start, for the processor at hand, and kept under /tmp: the root
# file system may be read-only, /tmp may not.
ENV PATH=/opt/stagefare/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/tmp/numba \
    STAGEFARE_DATA_DIR=/var/lib/stagefare \
    STAGEFARE_HOST=0.0.0.0 \
    STAGEFARE_PORT=8000
VOLUME /var/lib/stagefare
EXPOSE 8000
USER 10001:10001
WORKDIR /var/lib/stagefare
# Whether the process lives: whoever restarts what is unhealthy should not do so for a database that
# is away, as /readyz would have it.
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["stagefare"]
CMD ["serve"]
