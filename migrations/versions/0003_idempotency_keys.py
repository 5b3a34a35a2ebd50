"""Idempotency keys of teams, with the first answers."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# Ordered by code point on both databases.
text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
moment = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("team", text, nullable=False),
        sa.Column("key", text, nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("holder", text, nullable=False),
        sa.Column("leased_until", moment, nullable=False),
        sa.Column("expires_at", moment, nullable=False),
        sa.Column("status_code", sa.BigInteger(), nullable=True),
        sa.Column("headers", sa.JSON(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("made", text, nullable=True),
        sa.CheckConstraint(
            "length(key) BETWEEN 1 AND 255", name=op.f("ck_idempotency_keys_key_length")
        ),
        sa.CheckConstraint(
            "length(fingerprint) = 32", name=op.f("ck_idempotency_keys_fingerprint_length")
        ),
        sa.CheckConstraint(
            "(status_code IS NULL AND headers IS NULL AND body IS NULL AND made IS NULL) OR "
            "(status_code IS NOT NULL AND headers IS NOT NULL AND "
            "(body IS NULL) <> (made IS NULL))",
            name=op.f("ck_idempotency_keys_answer_whole"),
        ),
        sa.ForeignKeyConstraint(["team"], ["teams.name"], name=op.f("fk_idempotency_keys_teams")),
        sa.PrimaryKeyConstraint("team", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index("ix_idempotency_keys_expiry", "idempotency_keys", ["team", "expires_at"])


def downgrade() -> None:
    op.drop_table("idempotency_keys")
