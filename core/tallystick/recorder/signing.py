"""Signatures: Ed25519 with a key of the user's own, of a foil over run, count and head, and of any
bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tallystick.errors import InvalidInput, require
from tallystick.records import Foil, canonical_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )


class KeyPair(NamedTuple):
    """An Ed25519 key for signing, as PEM."""

    private_key: bytes
    public_key: bytes


def new_key() -> KeyPair:
    """Generate a private key; return it with its public key."""
    require("cryptography", extra="signing")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(private, _pem_of(key.public_key()))


class Signed(NamedTuple):
    """A signature of 64 bytes, and the public key of whoever signed, as PEM and as 32 bytes."""

    signature: bytes
    public_key: bytes
    raw_public_key: bytes


def sign_bytes(content: bytes, private_key: bytes) -> Signed:
    """Sign bytes with a private key in PEM. Raises InvalidInput for anything but an Ed25519 key,
    MissingExtra.
    """
    key = _private(private_key)
    public = key.public_key()
    return Signed(key.sign(content), _pem_of(public), public.public_bytes_raw())


def check_bytes(content: bytes, signature: bytes, key: Ed25519PublicKey) -> bool:
    """Return True if the owner of the key signed these bytes."""
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, content)
    except InvalidSignature:
        return False
    return True


def sign(foil: Foil, private_key: bytes) -> Foil:
    """Sign a foil with a private key in PEM. Raises InvalidInput for anything but an Ed25519 key,
    MissingExtra.
    """
    made = sign_bytes(_signed_bytes(foil), private_key)
    return foil.model_copy(
        update={"signature": made.signature.hex(), "signed_by": made.raw_public_key.hex()}
    )


def check(foil: Foil, public_key: bytes | None = None) -> bool | None:
    """Check the signature of a foil under `public_key` (PEM, or 32 bytes in hexadecimal).

    None if nothing is signed and no key is given. Without a key it is checked under the key that
    the foil names, which proves only that nothing changed since the owner of that key signed.
    Raises InvalidInput, MissingExtra.
    """
    expected = None if public_key is None else public_key_of(public_key)
    if foil.signature is None or foil.signed_by is None:
        return None if expected is None else False
    require("cryptography", extra="signing")
    key = expected or public_key_of(foil.signed_by.encode())
    try:
        signature = bytes.fromhex(foil.signature)
    except ValueError:
        return False
    return check_bytes(_signed_bytes(foil), signature, key)


def public_key_of(pem: bytes) -> Ed25519PublicKey:
    """Read a public key in PEM, or 32 bytes in hexadecimal. Raises InvalidInput."""
    require("cryptography", extra="signing")
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        if pem.lstrip().startswith(b"-----"):
            key: Any = serialization.load_pem_public_key(pem)
        else:
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(pem.decode().strip()))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidInput(
            "This is no public key: give PEM, or 32 bytes in hexadecimal."
        ) from error
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidInput("This public key is not one of Ed25519.")
    return key


def _private(pem: bytes) -> Ed25519PrivateKey:
    require("cryptography", extra="signing")
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidInput("This is no private key in PEM without a password.") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInput("This private key is not one of Ed25519. `tally keygen` makes one.")
    return key


def _pem_of(key: Ed25519PublicKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _signed_bytes(foil: Foil) -> bytes:
    return canonical_json(["tallystick/foil/v1", foil.run_id, foil.count, foil.head])
