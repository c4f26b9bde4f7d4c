"""Stored bytes and keyed digests: compression, encryption where it is asked for, the digest of a
piece of state, and the MACs of rows and threads.

The digest is an HMAC under a key of the scope, so that equal bytes are stored once within a scope
and two scopes cannot be compared. With a cipher that key is itself encrypted: without the cipher's
key nobody can tell whether a guess is in the database, and bytes that were forged or moved do not
match their digest.
"""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Iterable
from typing import Any, Protocol

import zstandard

from tallystick.errors import CorruptTally, StorageError
from tallystick.storage.rows.checkpoints import WriteRow

DICTIONARY = (
    b"\x94\xc7\xca\x05\x94\xbelangchain_core.messages.system\xadSystemMessage"
    b"\x86\xa7content\xbdYou are a helpful"
    b" assistant. "
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa6system\xa4name\xc0\xa2id\xd9$0000"
    b"0000-0000-0000-0000-000000000000\xb3model_validate_json\xc8\x01%\x05\x94\xbclangchain_core.messages.tool"
    b'\xabToolMessage\x89\xa7content\xd9K[{"id": "", "name": "", "url": "https://www.", "title": "'
    b'", "content": '
    b'""}]\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa4tool\xa4name\xa6search'
    b"\xa2id\xd9$00000000-0000-0000-0000-000000000000\xactool_call_id\xa5call_\xa8artifact\xc0\xa6status\xa7succe"
    b"ss\xb3model_validate_json\xc8\x01\n\x05\x94\xbdlangchain_core.messages.human\xacHumanMessage\x86\xa7content"
    b"\x92\x82\xa4type\xa4text\xa4text\xb9Could you please tell me "
    b"\x82\xa4type\xa9image_url\xa9image_url\x81\xa3"
    b"url\xb6data:image/png;base64,\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name"
    b"\xc0\xa2id\xd9$00000000-0000-0000-0000-000000000000\xb3model_validate_json\xc8\x02\xf2\x05\x94\xbalangchain"
    b"_core.messages.ai\xa9AIMessage\x89\xa7content\xa0\xb1additional_kwargs\x81\xa7refusal\xc0\xb1response_metad"
    b"ata\x88\xabtoken_usage\x85\xb1completion_tokens\n\xadprompt_tokens\n\xactotal_tokens\x14\xb9completion_toke"
    b"ns_details\x84\xbaaccepted_prediction_tokens\x00\xacaudio_tokens\x00\xb0reasoning_tokens\x00\xbarejected_pr"
    b"ediction_tokens\x00\xb5prompt_tokens_details\x82\xacaudio_tokens\x00\xadcached_tokens\x00\xaemodel_provider"
    b"\xa6openai\xaamodel_name\xa4gpt-\xb2system_fingerprint\xa3fp_\xa2id\xa9chatcmpl-\xacservice_tier\xa7default"
    b"\xadfinish_reason\xaatool_calls\xa8logprobs\xc0\xa4type\xa2ai\xa4name\xc0\xa2id\xd9)run--00000000-0000-0000"
    b"-0000-000000000000\xaatool_calls\x91\x84\xa4name\xa6search\xa4args\x81\xa5query\xa0\xa2id\xa5call_\xa4type"
    b"\xa9tool_call\xb2invalid_tool_calls\x90\xaeusage_metadata\x85\xacinput_tokens\x01\xadoutput_tokens\x01\xact"
    b"otal_tokens\x02\xb3input_token_details\x82\xa5audio\x00\xaacache_read\x00\xb4output_token_details\x82\xa5au"
    b"dio\x00\xa9reasoning\x00\xb3model_validate_json the and of to a in is that for it as was "
    b"with be by on not "
    b"he his but at are this have from or had an they which one you were all her she there would "
    b"their we "
    b"him been has when who will no more if out so up said what its about than into them can "
    b"only other ti"
    b"me new some could these two may first then do any like my now over such our me even most "
    b"made after "
    b"also well did many before must through years where much your way down should because long "
    b"each just "
    b"people those too little "
    b'["s","list",[0,1,1,2],[1,33,65,68,70],[2,["s","dict","f",{"messages":['
    b'"s","list",[0,1]]}],"i","null",""],"msgpack","p","branch:to:agent":["i","null",""],"'
    b'branch:to:tools":["i","null",""],"__start__":["f",{"messages":["s","list",[0,{"parents":'
    b'{},"source":"input","step":-1,"user_id":"","langgraph_version":"","run_id":"{"parents":{'
    b'},"source":"loop","step":1}\x93\xc7\xb4\x05\x94\xbdlangchain_core.messages.human\xacHumanMessage\x86'
    b"\xa7content\xaaHow can I "
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0"
    b"\xa2id\xd9$00000000-0000-0000-0000-000000000000\xb3model_validate_json\xc7\xdc\x05\x94\xbalangchain_core.me"
    b"ssages.ai\xa9AIMessage\x89\xa7content\xabI'm sorry, "
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4t"
    b"ype\xa2ai\xa4name\xc0\xa2id\xd9$00000000-0000-0000-0000-000000000000\xaatool_calls\x90\xb2invalid_tool_call"
    b"s\x90\xaeusage_metadata\xc0\xb3model_validate_json\xc7\xe1\x05\x94\xbalangchain_core.messages.ai\xa9AIMessa"
    b"ge\x89\xa7content\xa8Here is "
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa2ai\xa4name\xc0"
    b"\xa2id\xd9,lc_run--00000000-0000-0000-0000-000000000000\xaatool_calls\x90\xb2invalid_tool_calls\x90\xaeusag"
    b"e_metadata\xc0\xb3model_validate_json\x85\xa1v\x04\xa2ts\xd9 "
    b"2026-01-01T00:00:00.000000+00:00\xb0channel_ve"
    b"rsions\x85\xa9__start__\x01\xa8messages\x02\xafbranch:to:agent\x03\xafbranch:to:tools\x03\xafbranch:to:mode"
    b"l\x03\xadversions_seen\x85\xa9__input__\x80\xa9__start__\x81\xa9__start__\x01\xa5agent\x81\xafbranch:to:age"
    b"nt\x02\xa5tools\x81\xafbranch:to:tools\x03\xa5model\x81\xafbranch:to:model\x02\xb0updated_channels\x91\xa9_"
    b"_start__\x85\xa1v\x04\xa2ts\xd9 "
    b"2026-01-01T00:00:00.000000+00:00\xb0channel_versions\x83\xa9__start__\xcd"
    b"\x01,\xa8messages\xcd\x01,\xafbranch:to:model\xcd\x01,\xadversions_seen\x83\xa9__input__\x80\xa9__start__"
    b"\x81\xa9__start__\xcd\x01,\xa5model\x81\xafbranch:to:model\xcd\x01,\xb0updated_channels\x92\xafbranch:to:mo"
    b"del\xa8messages\x92\xc7\xb4\x05\x94\xbdlangchain_core.messages.human\xacHumanMessage"
    b"\x86\xa7content\xaaHow "
    b"can I \xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0"
    b"\xa2id\xd9$00000000-00"
    b"00-0000-0000-000000000000\xb3model_validate_json\xc7\xdc\x05\x94\xbalangchain_core.messages.ai\xa9AIMessage"
    b"\x89\xa7content\xabI'm sorry, "
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa2ai\xa4name\xc0"
    b"\xa2id\xd9$00000000-0000-0000-0000-000000000000\xaatool_calls\x90\xb2invalid_tool_calls\x90\xaeusage_metada"
    b'ta\xc0\xb3model_validate_json["f",{"messages":["s","list",[0,{"messages":["s","list",[0,1],[1'
    b","
)


_PLAIN, _ZSTD, _ENCRYPTED = 0, 1, 0x80
"""First byte of stored bytes."""
_SHORT = 48
"""Bytes below which compression is not tried."""
_LARGEST = 1 << 30
"""Most bytes that one piece may decompress to: a hostile piece cannot ask for all memory."""

_dictionary = zstandard.ZstdCompressionDict(DICTIONARY, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
_local = threading.local()
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Cipher(Protocol):
    """Encryption at rest. Called outside of write transactions, from any thread."""

    @property
    def name(self) -> str:
        """Name that tells this cipher from another in the same scope."""
        ...

    def encrypt(self, plaintext: bytes) -> bytes:
        """Return the ciphertext, authenticated."""
        ...

    def decrypt(self, ciphertext: bytes) -> bytes:
        """Return the plain bytes. Raises any error for what was not encrypted with its key."""
        ...


class Codec:
    """The form of a scope's stored bytes, and their digests. Thread-safe."""

    def __init__(self, key: bytes, cipher: Cipher | None = None) -> None:
        self._key = key
        self._cipher = cipher

    @property
    def encrypts(self) -> bool:
        """True if stored state is encrypted."""
        return self._cipher is not None

    def digest(self, domain: bytes, *pieces: bytes) -> bytes:
        """Return 128 bits of an HMAC-SHA-256 over the pieces, one after the other, in `domain`."""
        return hmac.digest(self._key, domain + b"".join(pieces), "sha256")[:16]

    def row_mac(self, *pieces: bytes) -> bytes:
        """Return an HMAC-SHA-256 over the pieces, each with its length: the MAC of a row."""
        sized = b"".join([len(piece).to_bytes(8, "big") + piece for piece in pieces])
        return hmac.digest(self._key, b"tallystick/row/v1\x00" + sized, "sha256")

    def pack(self, content: bytes, *, encrypt: bool = True) -> bytes:
        """Return the stored form of `content`."""
        stored = _compress(content)
        if encrypt and self._cipher is not None:
            return bytes((_ENCRYPTED,)) + self._cipher.encrypt(stored)
        return stored

    def unpack(self, stored: bytes, *, encrypted: bool = True) -> bytes:
        """Return the content of a stored form.

        Raises CorruptTally, or StorageError when it is encrypted with another cipher.
        """
        if stored and stored[0] == _ENCRYPTED:
            if self._cipher is None:
                raise StorageError(
                    "This state is encrypted. Give the serializer that it was written with."
                )
            try:
                stored = self._cipher.decrypt(stored[1:])
            except Exception as error:
                raise CorruptTally(
                    "Encrypted state does not open: it was changed, or sealed with another key."
                ) from error
        elif encrypted and self._cipher is not None:
            raise CorruptTally(
                "State that should be encrypted is not: it was written without the key."
            )
        return _decompress(stored)

    def unpack_checked(self, domain: bytes, digest: bytes, stored: bytes) -> bytes:
        """Same as `unpack`, compared with the digest that it was stored under.

        Raises CorruptTally.
        """
        content = self.unpack(stored)
        if self.digest(domain, content) != digest:
            raise CorruptTally(
                "A piece of state does not match its digest. Run `tally verify` to see where."
            )
        return content


def compact_json(value: Any) -> bytes:
    """Return JSON without white space, in ASCII."""
    return _encode(value).encode()


# MACs of rows and threads
#
# The MAC of a row covers its place (scope, thread, namespace, ids) and its content, so that a row
# that was edited, or moved to another place, does not match. The checksum of a thread is the sum of
# the MACs of its checkpoints modulo 2^256. A sum, and not a chain, because a thread is no
# append-only list: a put replaces the checkpoint of the same id, prune and delete remove some in
# the middle, and each of these must update the checksum from the rows that it touches alone, in any
# order. What must hold after every transaction: the checksum is the sum over exactly the
# checkpoints that are there. So whoever adds a row adds its MAC, and whoever replaces or removes
# one subtracts the MAC *that was stored*, not one computed anew; else `verify` reports a checkpoint
# that was removed, added or changed. Pending writes have MACs of their own and are no part of the
# sum: they come and go between two checkpoints.


def checkpoint_mac(
    codec: Codec,
    scope: str,
    thread: str,
    namespace: str,
    id: str,
    parent_id: str | None,
    metadata: bytes,
    body_type: str,
    body: bytes,
    digest: bytes,
) -> bytes:
    """Return the MAC of a checkpoint: its place, metadata, body and the digest of its values."""
    names = (scope, thread, namespace, id, "" if parent_id is None else f"={parent_id}")
    return codec.row_mac(
        *[name.encode("utf-8", "surrogatepass") for name in names],
        metadata,
        body_type.encode(),
        body,
        digest,
    )


def write_mac(codec: Codec, scope: str, thread: str, row: WriteRow, digest: bytes) -> bytes:
    """Return the MAC of a pending write: its place and the digest of its value."""
    names = (
        scope,
        thread,
        row.namespace,
        row.checkpoint_id,
        row.task_id,
        str(row.position),
        row.task_path,
        row.channel,
    )
    encoded = [name.encode("utf-8", "surrogatepass") for name in names]
    return codec.row_mac(b"write", *encoded, digest)[:16]


def thread_checksum(checksum: str, *, add: Iterable[bytes], subtract: Iterable[bytes]) -> str:
    """Return the checksum of a thread after row MACs were added and removed, as 64 hex digits."""
    total = int(checksum or "0", 16) + sum(int.from_bytes(mac, "big") for mac in add)
    total -= sum(int.from_bytes(mac, "big") for mac in subtract)
    return f"{total % (1 << 256):064x}"


def _compress(content: bytes) -> bytes:
    if len(content) >= _SHORT:
        compressed: bytes = _zstd()[0].compress(content)
        if len(compressed) < len(content):
            return bytes((_ZSTD,)) + compressed
    return bytes((_PLAIN,)) + content


def _decompress(stored: bytes) -> bytes:
    form, body = stored[:1], stored[1:]
    if form == b"\x00":
        return body
    if form != b"\x01":
        raise CorruptTally("A piece of state begins with a mark that no release has written.")
    try:
        if not 0 <= zstandard.frame_content_size(body) <= _LARGEST:
            raise CorruptTally("A piece of state says that it unfolds to more than may be held.")
        content: bytes = _zstd()[1].decompress(body)
    except (zstandard.ZstdError, MemoryError) as error:
        raise CorruptTally("A piece of state cannot be unfolded: its bytes are damaged.") from error
    return content


def _zstd() -> tuple[Any, Any]:
    # A compressor must not be used by two threads at once: each thread has a pair of its own.
    pair: tuple[Any, Any] | None = getattr(_local, "zstd", None)
    if pair is None:
        pair = (
            zstandard.ZstdCompressor(
                level=3, dict_data=_dictionary, write_checksum=False, write_dict_id=False
            ),
            zstandard.ZstdDecompressor(dict_data=_dictionary),
        )
        _local.zstd = pair
    return pair
