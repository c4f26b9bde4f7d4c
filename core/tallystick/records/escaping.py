"""Escaping: stored text as a model is shown it, so that it can look like nothing but stored text,
and `visible` text as a person is shown it.

For models it is for the inside of our frames and of the answers of our tools alone: what is stored,
and what a user writes in a prompt, is never changed. An escape leaves the text readable: a
backslash or `&lt;` breaks a mark, a hidden character is shown by its number. Everything here takes
time in proportion to the text.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

from tallystick.loading import late_pattern

_INDENT = "    "
"""The beginning of each further line of an item: no line of a text begins where items do."""

_LINE_BREAKS = late_pattern("\r\n|[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
"""Line breaks other than the newline."""

# Marks of structure


def _words(*names: str) -> str:
    return "|".join(names)


_TAGS = _words(
    r"system(?:[_-]?(?:prompt|message|reminder|instructions?))?",
    "developer",
    "user",
    "human",
    "assistant(?:_thinking)?",
    r"(?:pyai|antml):[\w-]+",
    r"tools?(?:_(?:calls?|results?|responses?|outputs?|use|use_error))?",
    r"functions?(?:_(?:calls?|results?|responses?|outputs?))?",
    r"invoke|parameter|think|thinking|reasoning",
    r"(?:start|end)_of_(?:turn|image|text)|(?:start|end)_header_id|eot_id|eom_id|python_tag",
    r"bos|eos|pad|unk|s|sop|eop|mask|endoftext|im_(?:start|end|sep)",
    r"fim_(?:prefix|middle|suffix|pad)|reserved_\d+|extra_id_\d+|unused\d+",
    # What loads a picture, or anything else, from where it points to.
    r"img|image|picture|svg|iframe|video|audio|embed|object",
)
_BRACKET = late_pattern(
    "[<\uff1c\ufe64\u2039\u2329\u27e8\u3008\u00ab\u300a\u276e\u29fc\u02c2\u1438]"
)
_TRAILER = late_pattern(
    r"(?<!\\)\((?=\s*(?:sources?\b[^()\n]{0,200}|no\s+sources?\s*);)", re.IGNORECASE
)
"""The beginning of what stands behind an item: its source, who may see it, and why."""
_OUR_NAME = "tallystick"
_LOOKALIKES = str.maketrans(
    {
        "\u0430": "a",
        "\u0441": "c",
        "\u0456": "i",
        "\u04cf": "l",
        "\u0442": "t",
        "\u0443": "y",
        "\u0455": "s",
        "\u043a": "k",
        "\u03b1": "a",
        "\u03b9": "i",
        "\u03ba": "k",
        "\u03c4": "t",
        "\u03c5": "y",
        "\u0131": "i",
    }
)

# Hidden characters

_HIDDEN = late_pattern(
    # The flags of England, Scotland and Wales, which need tags: they stay.
    "\U0001f3f4(?:\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074"
    "|\U000e0077\U000e006c\U000e0073))\U000e007f"
    "|[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    # Halves of characters, which no file and no wire takes.
    "\ud800-\udfff"
    "\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
UNSEEN = late_pattern(f"{_HIDDEN.pattern}|{_LINE_BREAKS.pattern}")
"""What a person does not see: line breaks of their own kinds steer a terminal too."""
_JOINING = late_pattern(
    "[\u0610-\u061a\u0620-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18aa"
    "\u1900-\u1c4f\ua800-\ua95f\ua980-\uaaff\uabc0-\uabff\ufb50-\ufdff\ufe70-\ufefc"
    "\U00010a00-\U00010eff\U00011000-\U00011fff\U0001e900-\U0001e95f]"
)
"""Letters and marks of scripts whose spelling needs joiners: Arabic, Persian, Hindi, Sinhala …"""
_PICTURE = late_pattern("[\u203c-\u2bff\u3030\u303d\u3297\u3299\ufe0f\U0001f000-\U0001fbff]")
"""Characters that a joiner makes one emoji of."""
_UNSPACED = late_pattern("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff]")
"""Thai, Lao, Burmese and Khmer, whose words are parted by a space without width."""
_RIGHT_TO_LEFT = late_pattern(
    "[\u05d0-\u05f4\u0620-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_JAMO = late_pattern("[\u1100-\u115e\u1161-\u11ff\ua960-\ua97f\ud7b0-\ud7ff]")
_NEAR = 64
"""Characters around a direction mark among which a letter from right to left needs it."""

# Pictures

_PICTURE_MARK = late_pattern(r"!\[")
_LONGEST_TARGET = 256
# Bounded: without an end, each of many beginnings reads on to the end of the text.
_INLINE_PICTURE = late_pattern(
    rf"!\[[^\[\]\n]{{0,300}}\]\(\s{{0,100}}<?([^\s)>]{{0,{_LONGEST_TARGET}}})"
)
_OWN_FILE = late_pattern(
    r"(?![/\\][/\\])(?:data:image/[\w.+-]+;base64,[\w+/=]*|[\w./~@+,=?%#-]*)\Z"
)
"""Targets that no foreign host answers: relative paths, and pictures inside of the text."""

# The beginnings of items and of messages

_BULLET = late_pattern("[-*+\u2022\u2023\u25e6\u2043\u2010-\u2015\u2212](?=\\s)")
_LABEL = late_pattern(r"\[(?=(?:[a-z][a-z_]{0,40}(?:,[^\]\n]{0,80})?|\d{4}-\d\d-\d\d)\](?!\())")
_ITEM = late_pattern(rf"^([ \t]*{_BULLET.pattern}[ \t]+)(?={_LABEL.pattern})")
_ROLE = late_pattern(
    r"^([ \t]{0,3}(?:[-*+>#_\[(\u2022]{1,6}[ \t]{0,2}){0,3})"
    r"(?=(?:system|developer|human|user|assistant|tool|ai)(?:[ \t]+(?:prompt|message))?"
    r"[*_\])]{0,4}[ \t]{0,3}[:\uff1a])",
    re.IGNORECASE | re.MULTILINE,
)
_COLON = late_pattern("[:\uff1a](?=\\s|\\Z)")
_OBEYED = frozenset({"system", "developer"})
"""Speakers whom a model obeys: what they said once is no order here."""


def as_item(text: str) -> str:
    """Return a text as one item of a list: it begins like no other item and like no message, and
    its further lines are set off from the items.
    """
    first, *more = escape_marks(text).strip().split("\n")
    return "\n".join([_at_start(first), *(_indent_continuation(line) for line in more)])


def _indent_continuation(line: str) -> str:
    line = _ITEM.sub(r"\1\\", _ROLE.sub(r"\1\\", line))
    return f"{_INDENT}{line}".rstrip()


def as_field(text: str) -> str:
    """Return a text as the value of a field, whose own marks say where it ends: none of its lines
    begins like a message.
    """
    return _ROLE.sub(r"\1\\", escape_marks(text))


def as_name(text: str) -> str:
    """Return a name, such as that of a speaker, in one line: it ends no label and begins none."""
    lines = (line.strip() for line in escape_marks(text).split("\n"))
    name = _COLON.sub(r"\\\g<0>", _at_start(" ".join(line for line in lines if line)))
    return f"\\{name}" if name.casefold() in _OBEYED else name


@cache
def _template() -> re.Pattern[str]:
    """Return the pattern of the beginnings of the tokens of chat templates, and of tags that stand
    for a role, a tool or a picture.
    """
    return re.compile(
        # ChatML, Llama 3 and 4, Phi, Qwen, Harmony, Cohere: <|…|>; DeepSeek: in full width.
        # A text that was cut ends within one.
        r"[<\uff1c\ufe64](?=[|\uff5c](?:[^|\uff5c<>\n]{1,80}[|\uff5c]?[>\uff1e\ufe65]|[^|\uff5c<>\s]{0,80}\Z))"
        # Llama 2.
        r"|<<(?=/?SYS>>)"
        # Gemma, sentence pieces, tags of tools: <start_of_turn>, </s>, <tool_call>, <function=…>.
        rf"|[<\uff1c\ufe64](?=[/\uff0f]?(?:[\w-]{{1,16}}:)?(?:{_TAGS})(?:[\s=:/>\uff1e\ufe65\u2026]|\Z))"
        # Mistral and Llama 2: [INST], [/INST], [TOOL_CALLS].
        r"|(?<!\\)\[(?=/?INST\])"
        r"|(?<!\\)\[(?=/?(?-i:SYS|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|THINK|ARGS"
        r"|CALL_ID|IMG|IMG_BREAK|IMG_END|AUDIO|BEGIN_AUDIO|PREFIX|SUFFIX|MIDDLE|gMASK|sMASK|MODEL_SETTINGS"
        r")\])",
        re.IGNORECASE,
    )


def escape_marks(text: str) -> str:
    """Return a text that opens and closes no frame of ours, has no token of a chat template, no
    source of its own, no hidden character and no picture from elsewhere; its lines stay.
    """
    if text.isascii() and text.isprintable() and not _ASCII_MARK.search(text):
        return text
    text = _LINE_BREAKS.sub("\n", text)
    text = _HIDDEN.sub(_show_character, text)
    text = _BRACKET.sub(_our_mark, text)
    text = _template().sub(_break_mark, text)
    text = _TRAILER.sub(r"\\(", text)
    return _PICTURE_MARK.sub(_picture, text)


def escape_own_marks(text: str) -> str:
    """Return a text that opens and closes no frame of ours, and is whole otherwise."""
    return _BRACKET.sub(_our_mark, text)


def visible(text: str) -> str:
    """Return a text as a person is shown it, on a page or a terminal: what has no width, turns the
    direction, breaks a line unasked or is half a character is shown by its number.
    """
    if text.isascii() and text.isprintable():
        return text
    return UNSEEN.sub(_show_character, text.replace("\r\n", "\n"))


_ASCII_MARK = late_pattern(r"[<\[(]")


def _at_start(text: str) -> str:
    """Return a text that begins with no bullet, no label of an item and no role."""
    if _BULLET.match(text) or _LABEL.match(text):
        return f"\\{text}"
    role = _ROLE.match(text)
    return text if role is None else f"{role.group(1)}\\{text[role.end() :]}"


def _break_mark(mark: re.Match[str]) -> str:
    return "\\[" if mark.group() == "[" else "&lt;" * len(mark.group())


def _our_mark(bracket: re.Match[str]) -> str:
    behind = bracket.string[bracket.end() : bracket.end() + 32].lstrip(" \t\n/\uff0f\u2215\u2044")
    first = behind[:1]
    if first.isascii() and first not in "tT":
        return bracket.group()
    name = unicodedata.normalize("NFKC", behind).casefold().translate(_LOOKALIKES)
    return "&lt;" if name.startswith(_OUR_NAME) else bracket.group()


def _show_character(hidden: re.Match[str]) -> str:
    character = hidden.group()
    if len(character) > 1 or _is_needed(character, hidden.string, hidden.start()):
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _is_needed(character: str, text: str, place: int) -> bool:
    """Return True if a script or an emoji is not written without this hidden character here."""
    before = text[place - 1] if place else ""
    behind = text[place + 1 : place + 2]
    if character in "\u200c\u200d":
        if _JOINING.match(before):
            return True
        pictures = _PICTURE.match(before) and _PICTURE.match(behind)
        return character == "\u200d" and bool(pictures)
    if character == "\u200b":
        return bool(_UNSPACED.match(before) and _UNSPACED.match(behind))
    if character in "\u200e\u200f\u061c":
        near = text[max(0, place - _NEAR) : place + _NEAR]
        is_first = not before or before not in "\u200e\u200f\u061c"
        return is_first and bool(_RIGHT_TO_LEFT.search(near))
    if character in "\ufe0e\ufe0f":
        return before != "" and (
            before in "0123456789#*\u00a9\u00ae" or bool(_PICTURE.match(before))
        )
    if "\ufe00" <= character <= "\ufe0d":
        return "\u1000" <= before <= "\uabff" or _is_han(before)
    if "\U000e0100" <= character <= "\U000e01ef":
        return _is_han(before)
    if character in "\u180b\u180c\u180d\u180f":
        return "\u1820" <= before <= "\u18aa"
    if character in "\u115f\u1160":
        return bool(_JAMO.match(before) or _JAMO.match(behind))
    return False


def _is_han(character: str) -> bool:
    return (
        "\u3400" <= character <= "\u9fff"
        or "\uf900" <= character <= "\ufaff"
        or "\U00020000" <= character <= "\U0003ffff"
    )


def _is_own_file(target: str) -> bool:
    # Only a picture inside of the text is longer than what is read of a target.
    is_whole = len(target) < _LONGEST_TARGET or target.startswith("data:")
    return is_whole and _OWN_FILE.match(target) is not None


def _picture(mark: re.Match[str]) -> str:
    text, start = mark.string, mark.start()
    inline = _INLINE_PICTURE.match(text, start)
    if inline is not None and _is_own_file(inline.group(1)):
        return "!["
    before = text[start - 1 : start]
    rest = text[mark.end() : mark.end() + 1_000]
    if before and (before.isalnum() or before in "_#") and not re.search(r"\][(\[]", rest):
        return "!["  # a list of Rust: vec![1, 2]
    return "!\\["


Renderer = Callable[[Any], str]
"""Returns a record as HTML."""
_GROUP = "tallystick.html"
_VOID = {"br", "col", "hr", "meta"}


class Html(str):
    """Markup in which every text is escaped already."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """Return an element. Children are escaped unless they are `Html`, None is left out; attributes
    are always escaped, `class_` is `class`, True stands alone, None and False are left out.
    """
    said = "".join(
        f" {key.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{escape(visible(str(value)))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{said}>")
    inner = "".join(_escape_child(child) for child in children if child is not None)
    return Html(f"<{name}{said}>{inner}</{name}>")


def html_table(caption: object, header: Sequence[object], rows: Iterable[Sequence[object]]) -> Html:
    """Return a table. Everything in it is escaped: stored text is text there too."""
    head = tag("tr", *(tag("th", name) for name in header))
    body = Html("".join(tag("tr", *(tag("td", cell) for cell in row)) for row in rows))
    return tag("table", tag("caption", caption), tag("thead", head), tag("tbody", body))


def html_of(record: object) -> str | None:
    """Return a record as HTML for a notebook; None where nobody renders its kind."""
    renderers = _renderers()
    for kind in type(record).__mro__:
        if kind in renderers:
            return renderers[kind](record)
    return None


def cut(text: str, most: int = 80) -> str:
    """Return the beginning of a text on one line, at most `most` characters."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else line[: most - 1] + "…"


@cache
def _renderers() -> Mapping[type, Renderer]:
    from importlib.metadata import entry_points  # slow to load, for notebooks alone

    found: dict[type, Renderer] = {}
    for entry in entry_points(group=_GROUP):
        found.update(entry.load())
    return found


def _escape_child(child: object) -> str:
    return child if isinstance(child, Html) else escape(visible(str(child)))
