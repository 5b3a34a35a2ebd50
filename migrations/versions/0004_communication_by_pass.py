"""Tensor-parallel communication of measurements, pass by pass.

Rows of before have none: their profiles say one number for all passes, or nothing.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_COLUMNS = tuple(
    f"{name}_{part}_seconds"
    for name in ("forward", "backward", "recompute")
    for part in ("communication", "exposed")
)


def upgrade() -> None:
    # Written out, because SQLite takes a constraint with a new column only.
    double = sa.Double().compile(dialect=op.get_context().dialect)
    for column in _COLUMNS:
        op.execute(
            f"ALTER TABLE measurements ADD COLUMN tensor_parallel_{column} {double} "
            f"CONSTRAINT ck_measurements_{column}_range "
            f"CHECK (tensor_parallel_{column} BETWEEN 0 AND 1e300)"
        )


def downgrade() -> None:
    for column in reversed(_COLUMNS):
        op.drop_column("measurements", f"tensor_parallel_{column}")
