"""Assertions: sentences that state something by their grammar, where no phrase tells their kind.

A sentence asserts where it has a subject of its own (a name, a thing with its article, something
that is somebody's, a person) and says enough about it, or where it says that something changed or
ended. What only points ("that is great"), addresses somebody or reacts asserts nothing to keep.
"""

from __future__ import annotations

import re

from tallystick.pipeline.phrases import CHANGED, ENDED, FILLER, GRAMMAR, NEW, NO_NAMES, Phrase
from tallystick.pipeline.tense import tells_a_change
from tallystick.ranking import analyze

_LEAST_TERMS = 3
"""Words of meaning that a sentence has at least."""
_POINTING = Phrase(
    r"^(?:(?:that|this|it|these|those|there|here)(?:['’]s| is| was| would| will| sounds| looks"
    r"| seems"
    r"| makes| does| doesn['’]t| could| should| might)\b|it depends|what (?:a|an)\b|how\b"
    r"|let(?:['’]s"
    r"| me| us)\b|i(?:['’]m| am) (?:just|so|not|very|really|sorry|glad|happy|afraid|curious|sure"
    r"|kidding"
    r"|trying|thinking|wondering|looking)\b|i(?:['’]ll| will|['’]d| would| think| guess| hope"
    r"| wish| believe"
    r"| wonder| mean| see| know| don['’]t know| didn['’]t know| was wondering| want| need)\b"
    r"|you\b|your\b"
    r"|please\b|sorry\b|thanks?\b|wow\b|hmm?\b|oh\b|ah\b|well\b|good\b|great\b|nice\b|sounds\b"
    r"|glad\b"
    r"|looking forward|see you|talk to|take care|have a|happy\b|congrat|any\b|can\b|could\b|would\b"
    r"|das (?:ist|war|wäre|klingt|geht|macht)\b|es (?:ist|war|wäre|geht|kommt|tut|freut)\b"
    r"|ich (?:melde"
    r"|denke|glaube|hoffe|weiß|frage|würde|möchte|will|wollte|freue)\b|keine ahnung|wie\b|was\b"
    r"|danke"
    r"|viel\b|schön\b|du\b|sie können|tut mir|mal (?:sehen|schauen)|bis\b"
    r"|c['’](?:est|était)|ça\b|cela\b|je (?:ne sais|pense|crois|vais|voudrais|me demande"
    r"|suis désolée?)\b"
    r"|on (?:en|se|verra|va)\b|tu\b|vous\b|merci|bonne?\b|quelle?\b"
    r"|qué\b|eso\b|esto\b|no (?:lo )?sé|creo\b|pienso\b|espero\b|quiero\b|quisiera\b|hablamos"
    r"|nos vemos"
    r"|gracias|tú\b|usted\b|buen"
    r"|che\b|questo\b|non lo so|credo\b|penso\b|vorrei\b|ci (?:vediamo|sentiamo)|grazie"
    r"|isso\b|isto\b|não sei|acho\b|quero\b|obrigad"
    r"|dat\b|dit\b|ik (?:denk|hoop|weet|wil)\b|bedankt"
    r"|我(?:不知道|觉得|想|希望|以为|会|再|去|先)|那|这|谢|哈|你|您|好|太|请|让我|明天见|没事)",
    re.IGNORECASE,
)
"""The beginning of a sentence that points, reacts, plans the talk or addresses somebody."""
_SUBJECT = Phrase(
    r"^(?:(?:in|on|at|since|last|next|every|until|am|im|in|seit|letzte\w*|nächste\w*|en|depuis"
    r"|desde|el"
    r"|il|in|em|no|na)\s[^,.]{2,40}?,?\s+)?(?:the|a|an|my|our|his|her|their|its|each|every|all"
    r"|both|most"
    r"|many|some|several|two|three|four|five|six|seven|eight|nine|ten|\d+|one of|none of|half of"
    r"|der|die|das|ein|eine|mein\w*|unser\w*|sein\w*|ihr\w*|jede\w*|alle|zwei|drei|vier|fünf"
    r"|le|la|les|l['’]|un|une|mon|ma|mes|notre|nos|son|sa|ses|leurs?|chaque|deux|trois"
    r"|el|los|las|una|mi|mis|nuestr\w+|su|sus|cada|dos|tres|il|lo|gli|i|uno|due|tre|ogni"
    r"|o|os|as|um|uma|meus?|minhas?|noss\w+|seus?|suas?|dois|duas|de|het|een|mijn|onze|zijn|haar"
    r"|elke)"
    r"[\s'’]",
    re.IGNORECASE,
)
"""The beginning of a sentence whose subject is a thing or somebody's."""
_PERSON = Phrase(
    r"^(?:i|we|he|she|they|ich|wir|er|sie|je|j['’]|nous|il|elle|ils|elles|on|yo|nosotros|él|ella"
    r"|ellos"
    r"|io|noi|lui|lei|eu|nós|ele|ela|eles|ik|wij|we|hij|zij)(?:[\s'’])",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"^[A-ZÀ-Þ][\w&.-]*(?: (?:[A-ZÀ-Þ][\w&.-]*|\d[\w.]*|(?:of|von|de|van|del) [A-ZÀ-Þ]\w*))* "
    r"(?:(?:now|also|just|still|already|recently|finally|usually|never|always) )*(?P<verb>[^\W\d]+)"
)
_FINITE = re.compile(
    r"(?:\w+(?:ed|[^s]s|te|ten|t|é|ó|ait|ou)|is|are|was|were|has|had|did|does|will|can|broke"
    r"|came|went|took"
    r"|gave|got|made|said|saw|sold|bought|left|lost|won|met|sent|told|found|began|became|chose"
    r"|drove"
    r"|fell|flew|grew|kept|knew|led|paid|ran|rose|sang|spent|spoke|stood|taught|threw|wore|wrote"
    r"|built"
    r"|caught|cut|held|put|quit|slept|swam|hat|ist|war|kam|ging|fuhr|zog|blieb|est|a|va|vit|vive|es"
    r"|tiene|va|vai|tem|ha|está)"
)
_CHINESE = re.compile(
    r"^(?:我们?|他们?|她们?|我[的家]?[一-龥]{0,4}|[一-龥A-Za-z]{2,8})(?:.{0,6})?"
    r"(?:的|在|是|有|了|上|去年|今年|每|来自|住|从)[^，。]{2,}"
)
_HAN = re.compile(r"[\u4e00-\u9fff]")
_DATA = re.compile(r"\d")


def is_assertion(text: str) -> bool:
    """Return True for a sentence that states something to keep. Pure."""
    if _POINTING.match(text) is not None and not _is_change(text):
        return False
    if _HAN.search(text) is not None:
        return len(text) >= 6 and (_CHINESE.match(text) is not None or _is_change(text))
    terms = [word for word in analyze(text) if word not in GRAMMAR and word not in FILLER]
    if _is_change(text) and (len(terms) > 1 or (terms and ENDED.search(text) is not None)):
        return True
    is_person, is_thing = _PERSON.match(text) is not None, _SUBJECT.match(text) is not None
    if len(terms) > 1 and (is_person or is_thing) and tells_a_change(text):
        return True
    if len(terms) < _LEAST_TERMS:
        return False
    if is_thing or _is_named(text):
        return True
    return _DATA.search(text) is not None or (is_person and len(terms) > _LEAST_TERMS)


def _is_change(text: str) -> bool:
    return any(phrase.search(text) is not None for phrase in (CHANGED, ENDED, NEW))


def _is_named(text: str) -> bool:
    """Return True if a sentence begins with a name and a verb."""
    match = _NAMED.match(text)
    if match is None or match.group().split()[0].lower() in NO_NAMES:
        return False
    return _FINITE.fullmatch(match["verb"]) is not None
