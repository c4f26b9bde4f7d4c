"""LangGraph's ciphers as the trees use them: an EncryptedSerializer encrypts the stored pieces of
state.
"""

from __future__ import annotations

from langgraph.checkpoint.serde.base import CipherProtocol, SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from tallystick_langgraph.splitting import Shapes, Split, Whole, shapes_for

__all__ = ["CipherSealer", "storing"]


class CipherSealer:
    """A cipher of LangGraph; its name stands before what it encrypted."""

    def __init__(self, cipher: CipherProtocol) -> None:
        self._cipher = cipher

    @property
    def name(self) -> str:
        """What tells it from other ciphers."""
        return f"langgraph:{type(self._cipher).__qualname__}"

    def seal(self, plain: bytes) -> bytes:
        """Encrypt."""
        name, ciphertext = self._cipher.encrypt(plain)
        encoded = name.encode()
        return len(encoded).to_bytes(1, "big") + encoded + ciphertext

    def open(self, sealed: bytes) -> bytes:
        """Decrypt. Raises what the cipher raises."""
        size = sealed[0] + 1
        return self._cipher.decrypt(sealed[1:size].decode(), sealed[size:])


def storing(serde: SerializerProtocol) -> tuple[Shapes, CipherSealer | None]:
    """How the values of a serializer are stored, and what they are encrypted with.

    An EncryptedSerializer over a form that is known has its pieces encrypted one by one, so that
    they can be shared; one over another form, or a kind of its own, encrypts each value as a whole.
    """
    if type(serde) is EncryptedSerializer:
        inner = shapes_for(serde.serde)
        if isinstance(inner, Split):
            return inner, CipherSealer(serde.cipher)
        return Whole(serde), CipherSealer(serde.cipher)
    return shapes_for(serde), None
