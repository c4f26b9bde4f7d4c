"""A client: a tally behind a server, with the verbs, records and errors of a bound tally."""

from tallystick_server.client.aio import AsyncRemoteTally
from tallystick_server.client.remote import RemoteTally
from tallystick_server.client.runs import RemoteRun, RemoteStep

__all__ = ["AsyncRemoteTally", "RemoteRun", "RemoteStep", "RemoteTally"]
