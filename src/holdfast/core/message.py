"""Message and Envelope: one entry of a session's transcript, and what an agent receives of it."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.errors import BadInput, KeyLost, PayloadTooLarge
from holdfast.core.ids import DeliveryId, MessageId, TaskId, is_whole_id
from holdfast.core.patterns import compiled_late
from holdfast.core.payload import check_words, clean_text, decode_payload
from holdfast.core.task import Origin
from holdfast.core.transitions import MessageStatus

# The same limit as for a goal, because a message becomes the goal of the task that answers it.
MAX_MESSAGE_BYTES = 256 * 1024
MAX_ANSWER_CHARS = 1_000_000
# The channel of messages that a schedule posts; no person is at its other end.
CRON_CHANNEL = "cron"
# The channel of the message with which one session spawns another.
SPAWN_CHANNEL = "spawn"
# The channel of messages typed on the gateway's own host, or sent by a program with a token.
CONSOLE_CHANNEL = "console"
# The prefix of a message id that was stored as its digest, because it looks like a secret.
HASHED_ID = "sha256:"
# The prefix of everything that the gateway itself says, and of nothing else.
SYSTEM_MARK = "[System]"

# In the id of a message that replaces an update that could not be sent.
_QUEUED = "-queued-"

# Every character that some program treats as a line break becomes "\n", so that a check at the start of a
# line sees every line that a reader sees.
_BREAKS = compiled_late("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# What `check_text` refuses is removed here: people paste such characters without knowing it.
_CONTROLS = compiled_late("[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SURROGATE = compiled_late("[\ud800-\udfff]")
# These three are compiled on first use and cached by `re` itself: most programs have no messages.
# At the start of any line, after characters that a reader does not see, in any width or case.
_POSES_AS_SYSTEM = (
    "(?im)^([ \t\xa0\xad\u200b-\u200f\u2060\ufeff>*_#`|~+\u2022\u00b7\u2013\u2014-]*+)"
    "[\\[\uff3b\u3010\u3014(\uff08]\\s*+system\\s*+(?::[^\\]\n]{0,200})?[\\]\uff3d\u3011\u3015)\uff09]"
)
# The tag that marks system text for models, anywhere in a text. Possessive: otherwise long gaps take
# quadratic time.
_SYSTEM_TAG = r"(?i)<\s*+(/?)\s*+system\b[^<>]{0,200}>"
# Characters that no reader sees and screens leave out.
_UNSEEN = "[\u00ad\u061c\u180e\u200b-\u200f\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"


class Role(StrEnum):
    """The speaker of a message. A message from outside is never the system's."""

    USER = "user"
    AGENT = "agent"
    SYSTEM = "system"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a session's transcript, at its place in the order of the session."""

    id: MessageId
    session_key: str
    position: int
    role: Role
    channel: str
    account_id: str = ""
    # The channel's own id: unique in its channel and account, so that it is posted once.
    channel_message_id: str | None = None
    origin: Origin | None = None
    # JSON text, as it was said.
    body: bytes
    reply_to: MessageId | None = None
    created_at: datetime
    status: MessageStatus = MessageStatus.QUEUED
    task_id: TaskId | None = None
    updated_at: datetime
    # No key opens its text; SEALED replaces it.
    is_sealed: bool = False

    @property
    def text(self) -> str:
        """`[sealed]` when no key opens it; an agent that must answer it calls `checked` first."""
        return str(decode_payload(self.body))

    def checked(self) -> Message:
        """Itself. Raises KeyLost when no key opens its text."""
        if self.is_sealed:
            raise KeyLost("message", self.id)
        return self


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent receives: the text, and where it came from. Only the gateway speaks as `system`."""

    id: str
    session_key: str
    role: Role
    text: str
    channel: str
    peer: str | None = None
    account_id: str | None = None
    thread: str | None = None
    created_at: datetime

    @staticmethod
    def of(message: Message) -> Envelope:
        origin = message.origin or Origin(channel=message.channel)
        return Envelope(
            id=message.id,
            session_key=message.session_key,
            role=message.role,
            text=message.text,
            channel=message.channel,
            peer=origin.peer,
            account_id=origin.account_id,
            thread=origin.thread,
            created_at=message.created_at,
        )


def clean_message(text: object, role: Role) -> str:
    """The text as it is stored: without control characters, and with nothing from outside that poses as the
    system.

    Raises BadInput if it is not text or is empty, PayloadTooLarge above the cap.
    """
    if not isinstance(text, str):
        raise BadInput("message", f"text is needed, not {type(text).__name__}")
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_MESSAGE_BYTES:
        raise PayloadTooLarge("message", size, MAX_MESSAGE_BYTES)
    text = _plain(text)
    if role is Role.SYSTEM and text.startswith(SYSTEM_MARK):
        # Its own mark is at the beginning; what it quotes after that is not the system's.
        text = f"{SYSTEM_MARK}{_without_pose(f'.{text[len(SYSTEM_MARK) :]}')[1:]}"
    else:
        text = _without_pose(text)
    # The replacements may be longer than what they replaced, and so exceed the cap.
    return check_words("message", text, max_bytes=2 * MAX_MESSAGE_BYTES)


def _plain(text: str) -> str:
    """Valid text with one kind of line break and no control characters."""
    return _SURROGATE().sub("\N{REPLACEMENT CHARACTER}", _CONTROLS().sub("", _BREAKS().sub("\n", text)))


def _without_pose(text: str) -> str:
    text = _unposed(text)
    if not text.isascii():
        # Text that poses as the system with wide letters or invisible characters is normalised.
        # Imported here, because few messages need it.
        from unicodedata import normalize

        plain = normalize("NFKC", re.sub(_UNSEEN, "", text))
        if (unposed := _unposed(plain)) != plain:
            return unposed
    return text


def _unposed(text: str) -> str:
    text = re.sub(_POSES_AS_SYSTEM, r"\1[not the system]", text)
    return re.sub(_SYSTEM_TAG, r"<\1not the system>", text)


def without_markup(text: str) -> str:
    """The text for places that may show it as HTML or Markdown: with other brackets instead of `<` and `>`,
    and with no link or image that leads elsewhere than it says."""
    return text.translate({ord("<"): "\u2039", ord(">"): "\u203a"}).replace("](", "] (")


def plain_line(text: str, max_chars: int) -> str:
    """One line that does no harm in a chat, a web page or a prompt: no escapes, secrets or markup, nothing
    that turns the text around, and nothing that poses as the gateway."""
    # Both before and after the lines are joined: what poses as the gateway may begin a line, or the text.
    lines = clean_answer(re.sub(_UNSEEN, "", clean_text(text, max_chars=max_chars))) or ""
    line = clean_answer(without_markup(" ".join(lines.split()))) or ""
    return " ".join(line.split())[:max_chars]


def clean_answer(text: str) -> str | None:
    """An agent's answer, cleaned for storing: never refused, and cut when it is longer than the cap.

    None when it is empty.
    """
    text = _plain(text)
    if len(text) > MAX_ANSWER_CHARS:
        left_out = len(text) - MAX_ANSWER_CHARS
        text = f"{text[:MAX_ANSWER_CHARS]}\n[… {left_out:,} characters left out …]"
    text = _without_pose(text).strip()
    return text or None


def reply_id(task_id: str) -> MessageId:
    """The id of a task's answer, derived from the task's id: writing it twice stores it once."""
    return MessageId(f"msg_{task_id.removeprefix('task_')}")


def notice_id(task_id: str) -> MessageId:
    """The id of the message that tells a session that one of its tasks failed."""
    return MessageId(f"msg_{task_id.removeprefix('task_')}-failed")


def update_id(key: str) -> MessageId:
    """The id of the message that tells a session of a detached task, by the key of the update."""
    _, task_id, *run_id, status = key.split(":")
    # The id that a producer gave to its own run may be too long; the task has only one such run.
    subject = next((one for one in run_id if is_whole_id("run", one)), task_id)
    return MessageId(f"msg_{subject.partition('_')[2]}-{status}")


def queued_update_id(message_id: str, attempts: int) -> MessageId:
    """The id of the message that gives an update to the session's agent, after so many attempts."""
    return MessageId(f"{message_id}{_QUEUED}{attempts}")


def queued_delivery_id(message_id: str) -> DeliveryId:
    """The delivery that waits until the session's agent has heard this message."""
    return delivery_id(message_id.partition(_QUEUED)[0])


def command_answer_id(message_id: str) -> MessageId:
    """The id of the gateway's answer to a chat command."""
    return MessageId(f"{message_id}-answer")


def delivery_id(message_id: str) -> DeliveryId:
    return DeliveryId(f"dlv_{message_id.removeprefix('msg_')}")
