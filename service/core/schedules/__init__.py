"""Pipeline schedules: orders of operations, and the kernel that gives them times."""
