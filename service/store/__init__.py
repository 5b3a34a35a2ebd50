"""The only SQL: tables, migrations' front door, and the ports of `service.app.ports` on them.

`create_engine` and `SqlDatabase` are what the application is built from. Every query of a unit of
work is scoped to the team it was opened for; only the token directory looks at all teams.
"""
