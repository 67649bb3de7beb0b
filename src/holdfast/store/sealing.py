"""Seals (encrypts) values with secrets before they are stored, and opens them again (docs/adr/0021).

A Vault knows the ledger's key. Rows are written and read through a Sealing, which gives access to the vault
inside one transaction, or outside of transactions.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import msgspec

from holdfast.core.errors import CannotSeal, KeyLost, KeyMissing, KeyProblem, KeyWrong
from holdfast.core.redaction import holds_secret
from holdfast.core.seal_mode import SEALED, SealMode
from holdfast.store.contract import Busy

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

KEY_BYTES: Final = 32
# How to get the ledger's key into the key file.
BRING: Final = (
    "put it back, or copy it from a host that has it: `holdfast store key export` there, "
    "`holdfast store key import` here"
)
# The fact that holds the ledger's wrapped key.
FACT: Final = "seal_key"
# The fact that holds the previous key, if its outer key was lost.
LOST: Final = "seal_key_lost"
# The first byte of a sealed value; JSON and all other stored forms begin differently.
MARK: Final = b"\x01"

_ID_BYTES = 4
_NONCE_BYTES = 24
# The length of a keyed digest of an input.
KEYED_BYTES: Final = len(MARK) + _ID_BYTES + 8
_HEAD_BYTES = len(MARK) + _ID_BYTES + _NONCE_BYTES
_WRAPPED = ("ledger_facts", FACT)

_pack = msgspec.msgpack.Encoder().encode


class OuterKey(Protocol):
    """The key outside the database that wraps the ledger's key: in a file, a variable or a command."""

    @property
    def where(self) -> str:
        """For messages: `the file /…/key`."""
        ...

    @property
    def remedy(self) -> str:
        """For messages: how to get the right key there."""
        ...

    def load(self, wanted: str | None = None) -> bytes | None:
        """The key, or None when there is none yet. Raises KeyProblem for a key that must not be used.

        If there are several keys, it is the one with the wanted fingerprint, if that exists.
        """
        ...

    def make(self) -> bytes:
        """A new key, durable when this returns; the existing key if another process made one first.

        Raises KeyMissing when this source cannot make one.
        """
        ...


class MemoryKey:
    """For a ledger in memory: the key exists only in this process."""

    where = "the memory of this process"
    remedy = "a ledger in memory has no other key"

    def __init__(self) -> None:
        self._key = secrets.token_bytes(KEY_BYTES)

    def load(self, wanted: str | None = None) -> bytes:  # noqa: ARG002 - there is one key only
        return self._key

    def make(self) -> bytes:
        return self._key


class WrappedKey(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger's key as stored in the ledger, encrypted with the outer key."""

    # The id of the ledger's key, which sealed values contain.
    id: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{8}\Z")]
    # The fingerprint of the outer key.
    outer: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16}\Z")]
    wrapped: str

    @classmethod
    def read(cls, fact: str) -> WrappedKey:
        """Raises KeyWrong. The fingerprint becomes part of a file name, so its shape is checked."""
        try:
            return msgspec.json.decode(fact, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise KeyWrong(f"the ledger's {FACT} is damaged ({error}); restore a backup") from error

    def write(self) -> str:
        return msgspec.json.encode(self).decode()


def fingerprint(outer: bytes) -> str:
    """Identifies an outer key. Keys are random, so the fingerprint does not reveal them."""
    return hashlib.blake2b(outer, digest_size=8, person=b"holdfast outer").hexdigest()


class LedgerKey:
    """The ledger's own key, and the keys derived from it."""

    __slots__ = ("_cipher", "_digests", "_files", "_nonces", "id", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.id = _derived(raw, b"id", _ID_BYTES)
        self._cipher = _derived(raw, b"cipher")
        self._nonces = _derived(raw, b"nonces")
        self._digests = _derived(raw, b"digests")
        self._files = _derived(raw, b"files")

    @classmethod
    def new(cls) -> LedgerKey:
        return cls(secrets.token_bytes(KEY_BYTES))

    def seal(self, plain: bytes, place: tuple[str, ...]) -> bytes:
        """Seal a value, bound to its place. It is deterministic, because a write may run twice."""
        from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as encrypt

        bound = _pack(place)
        nonces = hashlib.blake2b(bound, digest_size=_NONCE_BYTES, key=self._nonces)
        nonces.update(plain)
        nonce = nonces.digest()
        return b"%b%b%b%b" % (MARK, self.id, nonce, encrypt(plain, bound, nonce, self._cipher))

    def open(self, sealed: bytes, place: tuple[str, ...]) -> bytes | None:
        """The value; None if it was sealed with another key or in another place, or was changed since."""
        if sealed[len(MARK) : len(MARK) + _ID_BYTES] != self.id or len(sealed) < _HEAD_BYTES:
            return None
        from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as decrypt
        from nacl.exceptions import CryptoError

        nonce = sealed[_HEAD_BYTES - _NONCE_BYTES : _HEAD_BYTES]
        try:
            return decrypt(sealed[_HEAD_BYTES:], _pack(place), nonce, self._cipher)
        except (CryptoError, ValueError):
            return None

    def conceal(self, digest: bytes) -> bytes:
        """A keyed digest, so that a guess of the plaintext cannot be checked without the key. It contains the
        key's id, so that digests of different keys are not compared."""
        concealed = hashlib.blake2b(digest, digest_size=len(digest), key=self._digests).digest()
        return b"%b%b%b" % (MARK, self.id, concealed)

    def for_file(self, *place: str) -> bytes:
        """A derived key for a tool's own file; it opens nothing else."""
        return hashlib.blake2b(_pack(place), digest_size=KEY_BYTES, key=self._files).digest()

    def digest(self, payload: bytes, size: int) -> bytes:
        return hashlib.blake2b(payload, digest_size=size, key=self._digests).digest()


def wrap(key: LedgerKey, outer: bytes) -> WrappedKey:
    """Encrypt the ledger's key with the outer key."""
    wrapped = LedgerKey(outer).seal(key.raw, (*_WRAPPED, key.id.hex()))
    return WrappedKey(id=key.id.hex(), outer=fingerprint(outer), wrapped=base64.b64encode(wrapped).decode())


def unwrap(found: WrappedKey, outer: bytes | None, source: OuterKey) -> LedgerKey:
    """The ledger's key. Raises KeyMissing without an outer key, KeyWrong with a wrong one."""
    if outer is None:
        raise KeyMissing(
            f"this ledger is sealed with the key {found.outer} (its fingerprint), which is not in "
            f"{source.where}; {source.remedy}"
        )
    if fingerprint(outer) != found.outer:
        raise KeyWrong(
            f"this ledger is sealed with the key {found.outer} (its fingerprint), but the one in "
            f"{source.where} is {fingerprint(outer)}; {source.remedy}"
        )
    try:
        sealed = base64.b64decode(found.wrapped, validate=True)
    except ValueError:
        sealed = b""
    raw = LedgerKey(outer).open(sealed, (*_WRAPPED, found.id))
    if raw is None:
        raise KeyWrong(f"the ledger's {FACT} is damaged: the right key does not open it; restore a backup")
    return LedgerKey(raw)


class Vault:
    """The key of one ledger, loaded when this process first needs it."""

    def __init__(
        self, outer: OuterKey, mode: SealMode = SealMode.SECRETS, *, is_lenient: bool = False
    ) -> None:
        self.outer = outer
        self.mode = mode
        # A reader that shows [sealed] for values that it cannot open, instead of raising.
        self.is_lenient = is_lenient
        # Finds the key outside of a transaction; set by the store.
        self.ask: Callable[[], LedgerKey] | None = None
        # The same for comparisons: None when the ledger has no key.
        self.look: Callable[[], LedgerKey | None] = lambda: None
        # The key could not be fetched; a reader does not retry for each value.
        self.is_away = False
        # The key, once this process has sealed or opened a value.
        self.known: LedgerKey | None = None
        # The wrapped key and its outer key at the start: the outer key may be replaced while this runs.
        self._begun: tuple[WrappedKey, bytes] | None = None

    def begin(self, tx: Tx) -> None:
        """If the ledger has a key, check that the available one opens it. Raises KeyMissing, KeyWrong."""
        fact = tx.boots.fact(FACT)
        if fact is not None and not self.is_lenient:
            found = WrappedKey.read(fact)
            outer = self._outer_for(found)
            if outer is None or fingerprint(outer) != found.outer:
                unwrap(found, outer, self.outer)
            else:
                self._begun = found, outer

    @property
    def has_begun(self) -> bool:
        """Whether the ledger has a key and the available one opens it."""
        return self._begun is not None

    def _outer_for(self, found: WrappedKey) -> bytes | None:
        """Raises KeyProblem, which names the key that the ledger needs."""
        try:
            return self.outer.load(found.outer)
        except KeyProblem as problem:
            self.is_away = True
            raise type(problem)(
                f"{problem}; this ledger needs the key {found.outer} (its fingerprint)"
            ) from problem

    def key(self, tx: Tx | None) -> LedgerKey:
        """The ledger's key. In a transaction, raises KeyNeeded when there is none: the writer then makes it
        in a transaction of its own, and runs the write again."""
        if self.known is not None:
            return self.known
        if tx is None:
            assert self.ask is not None, "a store was opened with this vault"
            return self.ask()
        found = self.find(tx)
        if found is None:
            raise KeyNeeded(self)
        return found

    def find(self, tx: Tx) -> LedgerKey | None:
        """The ledger's key for opening; None when the ledger has none. Raises KeyMissing, KeyWrong."""
        if self.known is not None:
            return self.known
        if self._begun is not None:
            self.known = unwrap(*self._begun, self.outer)
            return self.known
        fact = tx.boots.fact(FACT)
        if fact is not None:
            found = WrappedKey.read(fact)
            self.known = unwrap(found, self._outer_for(found), self.outer)
        return self.known

    def make(self, tx: Tx) -> None:
        """Give the ledger a key unless it has one; nothing may be sealed with it before this commits."""
        if tx.boots.fact(FACT) is None:
            outer = self.outer.load() or self.outer.make()
            tx.boots.add_fact(FACT, wrap(LedgerKey.new(), outer).write())


def has_lost_key(tx: Tx) -> bool:
    """Whether the ledger may have values that no key opens, because a key was lost."""
    return tx.boots.fact(LOST) is not None


class KeyNeeded(Exception):
    """A write must seal a value, and the ledger has no key yet."""

    def __init__(self, vault: Vault) -> None:
        super().__init__("the ledger has no key yet")
        self.vault = vault


class Sealing:
    """Access to a vault inside one transaction, or outside of transactions."""

    __slots__ = ("_is_all", "_is_never", "_tx", "vault")

    def __init__(self, vault: Vault, tx: Tx | None = None) -> None:
        self.vault = vault
        self._tx = tx
        self._is_all = vault.mode is SealMode.ALL
        self._is_never = vault.mode is SealMode.NEVER

    def _key(self) -> LedgerKey:
        """The key for sealing. Raises CannotSeal when there is none and none can be made."""
        try:
            return self.vault.key(self._tx)
        except KeyProblem as error:
            raise CannotSeal(str(error)) from error

    def seal(self, plain: bytes, *place: str, of_secret: bool = False) -> bytes:
        """The value as it is stored: unchanged, or sealed in its place. With `of_secret` it is sealed even if
        it holds no secret itself: it may be a digest of one."""
        if self._is_never or not (of_secret or self._is_all or holds_secret(plain)):
            return plain
        return self._key().seal(plain, place)

    def seal_known(self, plain: bytes, *place: str, is_secret: bool) -> bytes:
        """The same for a value that was scanned or redacted before: it is not scanned again."""
        if not self._is_all and (not is_secret or self._is_never):
            return plain
        return self._key().seal(plain, place)

    def would_seal(self, *, is_secret: bool) -> bool:
        """Whether a value is sealed, given whether it holds a secret."""
        return self._is_all or (is_secret and not self._is_never)

    def seal_beside(self, plain: bytes, *place: str) -> bytes:
        """The same for information about sealed values, such as digests of several of them.

        It is sealed if the ledger has a key; a process that has sealed one of those values has the key.
        """
        key = None if self._is_never else self.vault.known
        return self.seal(plain, *place) if key is None else key.seal(plain, place)

    def key_for(self, plain: bytes) -> LedgerKey | None:
        """The key to seal a value with; None when the value is stored unsealed."""
        if self._is_never or not (self._is_all or holds_secret(plain)):
            return None
        return self._key()

    def maybe(self, plain: bytes | None, *place: str, of_secret: bool = False) -> bytes | None:
        return None if plain is None else self.seal(plain, *place, of_secret=of_secret)

    def open(self, stored: bytes, *place: str) -> bytes:
        """The value itself. Raises KeyLost; a lenient reader gets SEALED instead."""
        if stored[:1] != MARK:
            return stored
        return self._open(stored, place)

    def maybe_open(self, stored: bytes | None, *place: str) -> bytes | None:
        return None if stored is None else self.open(stored, *place)

    def _open(self, stored: bytes, place: tuple[str, ...]) -> bytes:
        vault = self.vault
        if vault.is_lenient and vault.is_away:
            return SEALED
        try:
            # Rows are read in transactions; outside, only values that this process has sealed are opened.
            key = vault.known if self._tx is None else vault.find(self._tx)
        except KeyProblem:
            if not vault.is_lenient:
                raise
            return SEALED
        plain = None if key is None else key.open(stored, place)
        if plain is not None:
            return plain
        if vault.is_lenient:
            return SEALED
        table = place[0].partition(".")[0]
        noun = f"{table[:-3]}y" if table.endswith("ies") else table.removesuffix("s")
        raise KeyLost(noun, "/".join(place[1:]))

    @property
    def opener(self) -> LedgerKey | None:
        """The key that has just opened a value."""
        return self.vault.known

    def file_key(self, *place: str) -> bytes | None:
        """The key for sealing a tool's own file, such as a receipt; None when nothing is to be sealed."""
        return None if self._is_never else self._key().for_file(*place)

    def key_of_file(self, *place: str) -> bytes | None:
        """The key for opening such a file, whatever the mode is now; None when the ledger has no key."""
        key = self.vault.known or (self.vault.look() if self._tx is None else self.vault.find(self._tx))
        return None if key is None else key.for_file(*place)

    def leave_loop(self) -> None:
        """Raises Busy in a transaction on the thread of an event loop: the write then runs on another
        thread."""
        if self._tx is not None and self._tx.is_inline:
            raise Busy

    # --- digests

    def conceal(self, digest: bytes, *, of_secret: bool = False) -> bytes:
        """A digest of plaintext as it is stored: keyed if the plaintext holds a secret, or if the ledger has
        a key anyway. `is_same` compares either form."""
        if self._is_never:
            return digest
        key = self._key() if of_secret else self.vault.known
        return digest if key is None else key.conceal(digest)

    def is_same(self, stored: bytes, digest: bytes, noun: str = "digest", record_id: str = "") -> bool:
        """Whether a stored digest, keyed or not, is that of the same plaintext. Raises KeyLost, with the
        record, when that needs another key."""
        if len(stored) != len(MARK) + _ID_BYTES + len(digest):
            return stored == digest
        vault = self.vault
        key = vault.known or (vault.look() if self._tx is None else vault.find(self._tx))
        if key is None or stored[len(MARK) : len(MARK) + _ID_BYTES] != key.id:
            raise KeyLost(noun, record_id)
        return stored == key.conceal(digest)


def is_keyed(digest: bytes | None) -> bool:
    """Whether a stored digest of an input is keyed, which means that the input held a secret."""
    return digest is not None and len(digest) == KEYED_BYTES and digest[:1] == MARK


class NoKey:
    """For a vault without a key."""

    where = "this place"
    remedy = "open the ledger with a key"

    def load(self, wanted: str | None = None) -> None:  # noqa: ARG002 - there is none
        return None

    def make(self) -> bytes:
        raise KeyMissing("no key can be made here; open the ledger with a key")


# Returns values that are not sealed, and raises KeyLost for those that are.
CLOSED: Final = Sealing(Vault(NoKey()))


def _derived(raw: bytes, purpose: bytes, size: int = KEY_BYTES) -> bytes:
    return hashlib.blake2b(purpose, digest_size=size, key=raw, person=b"holdfast seal").digest()


__all__ = [
    "CLOSED",
    "FACT",
    "KEYED_BYTES",
    "KEY_BYTES",
    "MARK",
    "KeyNeeded",
    "LedgerKey",
    "MemoryKey",
    "NoKey",
    "OuterKey",
    "Sealing",
    "Vault",
    "WrappedKey",
    "fingerprint",
    "is_keyed",
    "unwrap",
    "wrap",
]
