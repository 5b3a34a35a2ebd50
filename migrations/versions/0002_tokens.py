"""Bearer tokens of teams."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Ordered by code point on both databases.
text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
moment = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("team", text, nullable=False),
        sa.Column("id", text, nullable=False),
        sa.Column("name", text, nullable=True),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("expires_at", moment, nullable=False),
        sa.Column("revoked_at", moment, nullable=True),
        sa.CheckConstraint("length(id) = 20", name=op.f("ck_tokens_id_length")),
        sa.CheckConstraint("length(secret_hash) = 32", name=op.f("ck_tokens_secret_hash_length")),
        sa.ForeignKeyConstraint(["team"], ["teams.name"], name=op.f("fk_tokens_teams")),
        sa.PrimaryKeyConstraint("team", "id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("id", name=op.f("uq_tokens_id")),
    )


def downgrade() -> None:
    op.drop_table("tokens")
