"""How names are read: what a script marks as one, by patterns. Loaded with the first text that is
read for names: the patterns take megabytes, and most tallies have no graph.

Capitals inside of a sentence, titles in quotes, addresses, handles, and identifiers of code. A word
that begins a sentence counts only with more evidence; in German, whose nouns all have capitals,
several words or a title are needed.
"""

from __future__ import annotations

from itertools import pairwise

import regex  # type: ignore[import-untyped]

from tallystick.embedding import is_common_word
from tallystick.graph.names import Name, Names, Said, grammar_of
from tallystick.ranking.fences import FENCED
from tallystick.ranking.name_forms import normal_name

_MOST = 40
"""Names of one text at most, those that come first."""
_LONGEST = 80
"""Characters of a name at most."""


_CAPITAL = r"\p{Lu}[\p{L}\p{M}\p{N}'’\-]*"
_INITIAL = r"\p{Lu}\."
_JOIN = r"(?:of|the|de|del|della|di|da|du|des|van|von|der|den|bin|al|el|la|le|&|för|af)"
_WORD = regex.compile(r"[\p{L}\p{N}][\p{L}\p{M}\p{N}'’\-]*")
_PROPER = regex.compile(
    rf"(?<![\p{{L}}\p{{N}}_@#./\\-])(?:{_INITIAL} ?|{_CAPITAL})"
    rf"(?:[ \u00a0](?:(?:{_JOIN}[ \u00a0]){{1,2}}(?={_CAPITAL}))?(?:{_INITIAL}|{_CAPITAL}))*"
)
_BEGINS = regex.compile(r"(?:^|[.!?…:;。！？\n|]|[-–—•*#>]\s|[\"“”„«»(\[]\s?|[*_]{1,3})\s*$")
_NO_PROSE = regex.compile(
    rf"(?:{FENCED})"  # code
    r"|^[ \t]*\#{1,6}[ \t].*?$"  # a heading
    r"|^[ \t>]*(?:[-*•+]|\d{1,3}[.)])?[ \t]*\*\*[^*\n]{1,80}\*\*:?"  # the label of an entry
    r"|^[ \t>]*(?:[-*•+]|\d{1,3}[.)])[ \t]+[^\s:][^:\n]{0,40}:(?=\s)"
    r"|\[[^\[\]\n]{1,40}\](?!\()",  # to be filled in
    regex.MULTILINE | regex.DOTALL,
)
"""What gives its words capitals by its form."""
_TITLE = regex.compile(
    r"(?:\"(?P<a>\p{Lu}[^\"\n]{1,60}?)\"|“(?P<b>\p{Lu}[^”\n]{1,60}?)”|«\s?(?P<c>\p{Lu}[^»\n]{1,60}?)"
    r"\s?»|《(?P<d>[^》\n]{1,40})》|『(?P<e>[^』\n]{1,40})』)"
)
_HONORED = regex.compile(
    r"(?P<name>\p{Han}{1,3})(?=先生|女士|小姐|老师|老師|博士|教授|さん|さま|様|氏|君)"
)
_KATAKANA = regex.compile(r"[\p{Katakana}ー]{3,}(?:・[\p{Katakana}ー]{2,})*")
_ADDRESS = regex.compile(
    r"(?<![\w@])(?:[\w.+-]+@[\w-]+(?:\.[\w-]+)+|https?://[^\s<>\"')\]]+|@\w[\w.-]{1,38}\w|#\p{L}\w{2,38})"
)
_CODE = regex.compile(
    r"`(?P<quoted>[^`\n]{2,60})`"
    r"|(?<![\w/.@-])(?P<path>(?:[\w.-]+/)+[\w.-]+\.\w{1,5})(?![\w/])"
    r"|(?<![\w.-])(?P<ticket>\p{Lu}{2,10}-\d{1,6})(?![\w-])"
    r"|(?<![\w.@/-])(?P<snake>[a-z][a-z0-9]*(?:_[a-z0-9]+)+)(?![\w])"
    r"|(?<![\w.@/-])(?P<camel>\p{Lu}?[\p{Ll}\d]+(?:\p{Lu}[\p{Ll}\d]+)+)(?![\w])"
)
_HONORIFIC = regex.compile(
    r"(?:mr|mrs|ms|miss|dr|prof|professor|sir|lady|herr|frau|señor|señora|sr|sra|monsieur|madame"
    r"|mme|signor|signora|uncle|aunt|grandma|grandpa)\.?",
    regex.IGNORECASE,
)
_HONORIFIC_BEFORE = regex.compile(r"\b(?:mr|mrs|ms|dr|prof|st|sr|sra)\.\s*$", regex.IGNORECASE)
_ARTICLE = regex.compile(
    r"(?:^|\W)(?:der|die|das|den|dem|des|ein|eine|einen|einem|einer)\s$", regex.I
)
_ORGANIZATION = regex.compile(
    r"(?:^(?:university|museum|bank|ministry|institute|universität|club) (?:of|für)\b.*"
    r"|inc|ltd|llc|gmbh|ag|corp|co|plc|oy|ab|sa|srl|bv|university|universität|universidad|college"
    r"|school|bank|institute|institut|foundation|company|corporation|agency|ministry|committee"
    r"|association|hospital|clinic|museum|labs?|group|team|partners|press|society|council|club)\.?$",
    regex.IGNORECASE,
)
_PLACE_SUFFIX = regex.compile(
    r"(?:street|road|avenue|square|park|lake|river|mountain|mountains|island|beach|valley|bridge"
    r"|straße|strasse|platz|city|county|bay|ocean|sea|forest|station|airport)$",
    regex.IGNORECASE,
)
_PLACE_BEFORE = regex.compile(
    r"\b(?:in|near|from|to|at|around|visit(?:ed|ing)?|aus|nach|bei|en|desde|hacia|à|vers|depuis)\s$",
    regex.IGNORECASE,
)
_PLACE_ONLY = regex.compile(
    r"\b(?:lives?|lived|moved|born|based|located|travel(?:l?ed|s|ling)?|flew|trip|went|goes|going"
    r"|wohnt|wohne|zog|geboren|vive|nació|habite)\s+(?:in|near|from|to|at|around|aus|nach|en|à)\s$",
    regex.IGNORECASE,
)
_PERSON_AFTER = regex.compile(
    r"^(?:['’]s\s+(?:wife|husband|son|daughter|mother|father|sister|brother|friend|boss|birthday|mom"
    r"|dad)\b|\s+(?:said|says|told|asked|thinks|likes|loves|hates|prefers|wants|lives|works|married"
    r"|met|called|wrote|moved|was born|studied|teaches|plays|joined|runs|leads|manages)\b)"
)
_SUBJECT_AFTER = regex.compile(
    r"^(?:['’]s\b|\s+(?:and|&)\s+\p{Lu}|,\s+\p{Lu}|\s+(?:is|was|has|had|will|would|can|could|does|did"
    r"|should|must|may|might|isn|wasn|doesn|didn|hasn|won"
    r"|ist|war|hat|wird|kann|es|era|tiene|est|était|è|ha)\b"
    r"|\s+\p{Ll}+(?:ed|es|s|ет|ёт|ит|ал|ала|ил|ила)\b)"
)
_MONTHS = (
    "january february march april may june july august september october november december monday "
    "tuesday wednesday thursday friday saturday sunday januar februar märz mai juni juli oktober "
    "dezember montag dienstag mittwoch donnerstag freitag samstag sonntag"
)
_CONTRACTED = regex.compile(r"['’](?:s|re|ve|ll|d|m|t)$")
_NO_NAMES = frozenset(
    f"""
    {_MONTHS} i im ive ill id ok okay yes no hey hi hello thanks thank please sorry wow oh ah great
    good nice cool sure well also today tomorrow yesterday tonight now then later always never often
    sometimes maybe perhaps everyone someone anyone nothing everything something lets dont cant wont
    didnt doesnt isnt remember note todo use see check make add run set go new old first last next
    mr mrs ms dr prof sir english assistant user system ai pm am yeah yep yup nope nah woah whoa
    woohoo yay ooh ohh ugh um umm uh uhh hmm huh gotta gotcha awesome super absolutely definitely
    exactly totally agreed congrats congratulations bye goodbye anyway however almost listen look
    stay alright cause yknow btw fyi imo lol omg asap tldr etc ps nb eg ie vs aka welcome hopefully
    moreover furthermore therefore instead otherwise meanwhile finally firstly secondly mon
    tue tues wed thu thur thurs fri sat sun jan feb mar
    apr jun jul aug sep sept oct nov dec""".split()
)

_RELATIONS: tuple[tuple[str, str], ...] = (
    ("works_at", r"(?:works?|worked|working|arbeitet) (?:at|for|bei)"),
    ("lives_in", r"(?:lives?|lived|living|wohnt|vive|habite) (?:in|at|near|en|à)"),
    ("moved_to", r"(?:moved|is moving|moves) to"),
    ("born_in", r"(?:was|were|is) born (?:in|at)"),
    ("studied_at", r"(?:stud(?:ies|ied)|graduated) (?:at|from)"),
    ("married_to", r"(?:is|was|got) married to|married"),
    ("reports_to", r"reports? to"),
    ("depends_on", r"(?:depends?|relies|rely|builds?|is built) (?:up)?on"),
    ("part_of", r"(?:is|are|was) (?:a )?part of|belongs to"),
    ("uses", r"uses?|used|runs on|is written in"),
    ("owns", r"owns?|owned|bought|has bought"),
    ("leads", r"leads?|led|manages?|managed|is the (?:ceo|head|lead|manager|director|founder) of"),
    ("founded", r"founded|started|created|built|wrote"),
    ("visited", r"visited|(?:went|traveled|travelled|flew) to"),
    ("knows", r"knows|met|is (?:a )?friends? (?:of|with)"),
    ("replaces", r"replaces?|replaced|supersedes?"),
)
_BETWEEN = tuple(
    (
        name,
        regex.compile(
            rf"^(?:\s*\([^)]*\))?(?:\s+(?:now|also|still|just|recently|often|has|have|had))?\s+(?:{form})"
            r"(?:\s+(?:the|a|an|her|his|their|our|der|die|das|el|la))?\s*[\"“«`]?$",
            regex.IGNORECASE,
        ),
    )
    for name, form in _RELATIONS
)
_FAR = 60
"""Characters between two names of a relation at most."""


def read_names(text: str) -> Names:
    """Return the names in a text and what it says of two of them."""
    text = _NO_PROSE.sub(lambda match: "\n" * len(match.group()), text)
    taken: list[Name] = []
    spans: list[tuple[int, int]] = []

    def take(found: str, kind: str, start: int, is_sure: bool = True) -> None:
        stripped = found.strip(" .,;:!?'’\"“”")
        start += found.find(stripped) if stripped else 0
        end = start + len(stripped)
        if not 2 <= len(stripped) <= _LONGEST or any(
            start < other_end and other < end for other, other_end in spans
        ):
            return
        spans.append((start, end))
        taken.append(Name(stripped, kind, start, end, is_sure))

    for match in _ADDRESS.finditer(text):
        take(match.group(), "address", match.start())
    for match in _CODE.finditer(text):
        quoted = match.group("quoted")
        take(quoted or match.group(), "code", match.start("quoted") if quoted else match.start())
    for match in _TITLE.finditer(text):
        group = next(name for name, value in match.groupdict().items() if value is not None)
        if group in "de" or len(match.group(group).split()) <= 8:
            take(match.group(group), "work", match.start(group))
    for match in _HONORED.finditer(text):
        take(match.group("name"), "person", match.start())
    for match in _KATAKANA.finditer(text):
        take(match.group(), "name", match.start())
    grammar, is_german = grammar_of(text)
    for match in _PROPER.finditer(text):
        for name in _proper(
            text, match.group(), match.start(), grammar=grammar, is_german=is_german
        ):
            take(*name)
    names = tuple(sorted(taken, key=lambda name: name.start)[:_MOST])
    return Names(names, tuple(_relations(text, names)))


def _proper(
    text: str, found: str, start: int, *, grammar: frozenset[str], is_german: bool
) -> list[tuple[str, str, int, bool]]:
    """Return the names in a run of words with capitals, each with its type, its place and whether
    it is surely one.
    """
    before = text[max(0, start - _FAR) : start]
    if is_german and " von " in found and _ARTICLE.search(f"{before}{found.split()[0]} "):
        # "der Hund von Anna Schmidt": the first is no part of the name.
        skipped = found.index(" von ") + len(" von ")
        start, found = start + skipped, found[skipped:]
    begins = _BEGINS.search(text, max(0, start - 12), start) is not None
    words = list(_WORD.finditer(found))
    honored = _HONORIFIC_BEFORE.search(before) is not None
    first = 0
    while first < len(words) and (
        _is_empty(words[first].group(), grammar) or _HONORIFIC.fullmatch(words[first].group())
    ):
        # "The Hague" loses its article, and is found by either.
        honored = honored or _HONORIFIC.fullmatch(words[first].group()) is not None
        first += 1
    if first == len(words):
        return []
    last = len(words)
    while last > first + 1 and _is_empty(words[last - 1].group(), grammar):
        last -= 1
    offset, end = words[first].start(), words[last - 1].end()
    name = regex.sub(r"['’]s$", "", found[offset:end])
    length = last - first
    after = text[start + offset + len(name) :][:_FAR]
    before = text[max(0, start + offset - _FAR) : start + offset]
    is_sure = True
    if not honored and length == 1:
        if len(name) < 2 or name.isdigit():
            return []
        is_acronym = name.isupper() and len(name) <= 6
        if is_german and not is_acronym and not _PLACE_BEFORE.search(before):
            return []
        if begins and first == 0 and not is_acronym:
            is_plural = name.endswith("s") and not after.startswith(("'s", "’s"))
            if name.endswith(("ing", "ly")) or not _SUBJECT_AFTER.search(after):
                return []
            is_person = _PERSON_AFTER.search(after) is not None
            if is_plural and not is_person:
                return []
            is_sure = is_person or not is_common_word(name)
    return [(name, _type_of(name, before, after, honored=honored), start + offset, is_sure)]


def _type_of(name: str, before: str, after: str, *, honored: bool) -> str:
    if honored or (_PERSON_AFTER.search(after) and not _ORGANIZATION.search(name)):
        return "person"
    if _ORGANIZATION.search(name):
        return "organization"
    if _PLACE_SUFFIX.search(name) or _PLACE_ONLY.search(before[-40:]):
        return "place"
    if name.isupper() and len(name) <= 6:
        return "organization"
    return "name"


def _is_empty(word: str, grammar: frozenset[str]) -> bool:
    whole = word.casefold()
    plain = regex.sub(r"['’]", "", whole)
    # "That's" is "that", and begins many a sentence.
    short = _CONTRACTED.sub("", whole)
    return not _NO_NAMES.isdisjoint((plain, short)) or not grammar.isdisjoint((plain, short))


def _relations(text: str, names: tuple[Name, ...]) -> list[Said]:
    said: dict[tuple[str, str, str], Said] = {}
    for first, second in pairwise(names):
        between = text[first.end : second.start]
        if len(between) > _FAR or regex.search(r"[.!?\n]", between):
            continue
        if regex.search(r"\b(?:not|never|no longer|nicht|nunca|jamais)\b|n['’]t\b", between):
            continue
        for relation, form in _BETWEEN:
            if form.search(between):
                key = (normal_name(first.text), relation, normal_name(second.text))
                said.setdefault(key, Said(first.text, relation, second.text, 80))
                break
    return list(said.values())
