"""${message}"""

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None

# Ordered by code point on both databases.
text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
moment = sa.DateTime(timezone=True)


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    ${downgrades if downgrades else "pass"}
