"""LangGraph's ciphers for stored state: an EncryptedSerializer encrypts the chunks of state."""

from __future__ import annotations

from langgraph.checkpoint.serde.base import CipherProtocol, SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from tallystick_langgraph.splitting import (
    ElementSplitter,
    ValueSplitter,
    WholeSplitter,
    splitter_for,
)


class LangGraphCipher:
    """A cipher of LangGraph; its name precedes each ciphertext."""

    def __init__(self, cipher: CipherProtocol) -> None:
        self._cipher = cipher

    @property
    def name(self) -> str:
        """Name of this kind of cipher."""
        return f"langgraph:{type(self._cipher).__qualname__}"

    def encrypt(self, plaintext: bytes) -> bytes:
        """Return the ciphertext after the cipher's name."""
        name, ciphertext = self._cipher.encrypt(plaintext)
        encoded = name.encode()
        return len(encoded).to_bytes(1, "big") + encoded + ciphertext

    def decrypt(self, ciphertext: bytes) -> bytes:
        """Return the plain bytes. Raises what the cipher raises."""
        size = ciphertext[0] + 1
        return self._cipher.decrypt(ciphertext[1:size].decode(), ciphertext[size:])


def splitter_and_cipher(
    serde: SerializerProtocol,
) -> tuple[ValueSplitter, LangGraphCipher | None]:
    """Return the splitter for a serializer's values, and the cipher that encrypts them.

    An EncryptedSerializer over a serializer whose form is known has its chunks encrypted one by
    one, so that they can be shared; another encrypts each value as a whole.
    """
    if type(serde) is EncryptedSerializer:
        inner = splitter_for(serde.serde)
        if isinstance(inner, ElementSplitter):
            return inner, LangGraphCipher(serde.cipher)
        return WholeSplitter(serde), LangGraphCipher(serde.cipher)
    return splitter_for(serde), None
