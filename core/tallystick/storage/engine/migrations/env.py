"""Runs the migrations on the connection that `migrate` hands over, inside its transaction."""

from alembic import context

from tallystick.storage.engine.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    render_as_batch=False,
)
context.run_migrations()
