"""Tense: whether a sentence tells what happened, so that what was so before may be so no longer.

"We painted the gate blue" tells of a change; "the gate squeaks" says how something is, which may be
true beside what else is. The reading is by grammar, for the languages of `pipeline.phrases`: the
perfect and the simple past, without verbs of acts that leave everything as it was ("said", "saw",
"ate"), and not of what happened long ago.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tallystick.pipeline.phrases import Phrase, phrases

_END = r"(?![^\W_])"
_ADVERBS = r"(?: (?:just|already|finally|now|recently|also|since|been|\w+ly))*"

_ENGLISH_ACTS = frozenset(
    """
    added asked called chatted checked cooked discussed embed enjoyed exceed explained exchanged
    feared feed hated helped hoped indeed invited joked laughed liked listened lived looked loved
    mentioned missed naked named need noticed ordered played proceed promised red remembered
    rested sacred seed shared shed smiled speed stayed studied succeed talked tired tried turned
    used visited waited walked wanted watched weed wicked wished wondered worked worried
    """.split()  # noqa: SIM905
)
"""Words with the ending of a past tense that tell no change."""
_ENGLISH = re.compile(
    rf"(?P<before>(?:[\w'’]+ ){{0,3}})\b(?P<verb>[a-z]{{2,}}ed|began|broke|brought|built|bought"
    r"|came|chose|cut|drew|fell|found|gave|got|grew|laid|left|lost|made|paid|put|ran|redid|rewrote"
    rf"|rose|sent|set|shut|sold|stole|threw|took|tore|went|won|withdrew){_END}",
    re.IGNORECASE,
)
_STATE_BEFORE = frozenset(
    """
    for of in on at by with from per about into as all some any no each every more
    is are am be being it's he's she's they're i'm we're the a an my our your his her their its
    this that very so too quite rather more most really to not n't will would can could should may
    might must get gets
    """.split()  # noqa: SIM905
)
"""Words after which a past participle says how something is: "is painted", "the blocked port"."""
_BETWEEN = frozenset("now currently also still already usually always often just".split())  # noqa: SIM905
_ENGLISH_PERFECT = Phrase(
    rf"(?:(?:have|has|had|i've|we've|they've|you've){_ADVERBS}|(?:he|she|it|\w+)'s"
    rf"(?: now| just| already| finally)* (?:been|become|got|gone|had)|(?:was|were|got)"
    rf"(?: now| just| finally)*) (?P<verb>become|got|gotten|gone|come|grown|\w+ed|built|broken"
    rf"|brought|bought|chosen|cut|done|drawn|fallen|found|given|laid|left|lost|made|paid|put|risen"
    rf"|sent|set|shut|sold|stolen|taken|thrown|torn|withdrawn|won){_END}",
    re.IGNORECASE,
)
_PARTICIPLE = {
    "german": r"(?P<verb>(?:\w+)?ge\w{2,}(?:t|en)|(?:be|ver|er|ent|zer|über|um|unter|miss)\w{2,}"
    rf"(?:t|en)|\w{{3,}}iert){_END}",
    "french": rf"(?P<verb>\w{{2,}}(?:ée?s?|ie?s?|ise?s?|ite?s?|ue?s?|ert|int|ort)){_END}",
    "italian": rf"(?P<verb>\w{{2,}}(?:at|it|ut|es|os|st|rt|tt|us)[oaie]){_END}",
}
_OTHER = tuple(
    Phrase(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?:ha(?:t|be|ben|bt|st)|wurden?){_END}[^;]*?{_PARTICIPLE['german']}",
        rf"\b(?:ist|sind|bin){_END}[^.;]*?\b(?P<verb>\w*(?:gegangen|gekommen|gezogen|gewechselt"
        rf"|gestorben|gestiegen|gefallen|geworden|gewachsen|gelaufen|gefahren|worden)){_END}",
        r"\ba(?: \w+ment| enfin| été| déjà| tout)? (?P<verb>\w{2,}ée?s?|(?:re)?(?:pris|mis|peint)"
        r"|fini|vendu|perdu|reçu"
        rf"|ouvert|rendu|choisi|appris|obtenu|construit|réduit){_END}",
        rf"(?:\b(?:ai|tu as|ont|avons|avez|s['’]est|se sont)|j['’]ai)(?: \w+ment| enfin| été| déjà"
        rf"| tout)? {_PARTICIPLE['french']}",
        rf"\b(?:est|sont|suis|sommes) (?P<verb>(?:re)?(?:part|venu|mort|né|devenu|entré|sorti"
        rf"|arrivé|monté|descendu|tombé|parti|allé|passé)(?:e|s|es)?){_END}",
        rf"\b(?:ha|he|han|hemos|has|fue|fueron)(?: \w+mente| ya)? (?:sido )?(?P<verb>\w{{2,}}"
        rf"(?:ad[oa]s?|id[oa]s?|iert[oa]s?|uest[oa]s?|echo)){_END}",
        rf"(?<!\w)(?P<verb>\w{{2,}}(?:ó|aron|ieron|[^\W\d_aeiou]é|[^\W\d_aeiou]í)|dio|dieron|hizo"
        rf"|hicieron|puso|pusieron|trajo){_END}",
        rf"\b(?:ha|ho|hanno|abbiamo)(?: \w+mente| già| finalmente)? {_PARTICIPLE['italian']}",
        r"(?<!\w)(?:è|sono) stat[oaie] (?P<verb>\w+)",
        rf"(?<!\w)(?:è|sono) (?:(?P<verb>(?:andat|venut|mort|nat|diventat|passat"
        rf"|partit|arrivat|uscit|cadut|salit|sces)[oaie])){_END}",
        rf"(?<!\w)(?P<verb>\w{{2,}}(?:[^e\W]ou|[^m\Ws]eu|iu|aram|eram|iram)){_END}",
        rf"\b(?:foi|foram) (?P<verb>\w{{2,}}(?:ad|id)[oa]s?){_END}",
        rf"\b(?:heeft|hebben|heb|werd|werden|is|zijn|ben){_END}[^.;]*?\b(?P<verb>gestopt|verhuisd"
        rf"|verplaatst|gegaan|geworden|gekomen|overleden|overgestapt|begonnen|ge\w{{3,}}d"
        rf"|ver\w{{3,}}[dt]){_END}",
        "(?:已经?[^，。]{1,20}|(?:[换改搬升降修卖买辞戒]|完成|结束|取消|开始|停止)[\u4e00-\u9fff]{0,2})"
        "(?P<verb>了)",
        "(?P<verb>了)(?:$|[，。；、])",
    )
)
_ACTS = re.compile(
    r"^(?:ge(?:sagt|sehen|hört|gessen|trunken|spielt|kocht|arbeitet|wohnt|habt|dacht|fragt|lesen"
    r"|schrieben|liebt|mocht)|erzählt|besucht|gemeinsam|gestern|genug|gegen|gesamt|gerade|gern\w*"
    r"|verschieden\w*|über(?:all|haupt|morgen)"
    r"|dit|raconté|écrit|vu|lu|mangé|bu|joué|visité|travaillé|aimé|eu|été|parlé|pas|plus|mais"
    r"|dicho|visto|comido|hablado|café|bebé|puré|comité|aquí|allí|ahí|así|casi|leí|comí|vi|oí"
    r"|dijo|contó|habló|comió|leyó|jugó|trabajó|vivió|escribió|visitó|hablaron|dijeron|comieron"
    r"|detto|scritto|mangiato|letto|parlato|giocato|lavorato|visitato|tutto|tutti|tutta|tutte"
    r"|parte|questo|questa|posto|moto|foto|auto"
    r"|falou|disse|comeu|leu|viu|bebeu|jogou|trabalhou|visitou|ouviu|vou|sou|estou|ou|seu|teu|meu"
    r"|museu|europeu|céu|gezegd|gehad|geleerd)$",
    re.IGNORECASE,
)
"""What looks like a participle or past tense and tells no change."""
_LONG_AGO = phrases(
    rf"(?:once|(?:many |some |\w+ )?(?:years|decades|centuries) ago|as a (?:child|kid|student|boy"
    rf"|girl)|back then|in the (?:past|nineties|eighties)|when i was|used to){_END}",
    rf"(?:in|im jahr|en|nel|em|depuis|since|seit) (?:the )?(?:19|20)\d\d{_END}",
    rf"(?:einmal|einst|damals|früher|als kind|vor (?:vielen |\w+ )?jahren){_END}",
    rf"(?:autrefois|jadis|il y a \w+ ans|(?:quand|lorsque) j['’]étais){_END}",
    rf"(?:antaño|hace (?:\w+ )?años|de niñ[oa]|(?:\w+ )?anni fa|da bambin[oa]|há (?:\w+ )?anos"
    rf"|em criança|vroeger|(?:\w+ )?jaar geleden){_END}",
    r"以前|小时候|年前|曾经",
)
_MADE = Phrase(
    rf"(?:was|were|has been|is) (?:written|made|built|founded|designed|invented|named|painted"
    rf"|drawn|composed|directed) by{_END}|(?:wurde|ist) von [^.]* \w+en$"
    rf"|(?:a été|est) \w+ par{_END}|(?:fue|è stat[oa]|foi) \w+ (?:por|da){_END}",
    re.IGNORECASE,
)
"""Who made something, which is so forever."""


def tells_a_change(text: str) -> bool:
    """Return True if a sentence tells something that happened and may have ended a state. Pure."""
    return bool(happenings(text))


@lru_cache(maxsize=4096)
def happenings(text: str) -> tuple[tuple[int, int], ...]:
    """Return where the verbs are by which a sentence tells what happened and may have ended a
    state, as start and end in characters; none where it says how something is. Pure.
    """
    if _LONG_AGO.search(text) is not None or _MADE.search(text) is not None:
        return ()
    found = [
        match.span("verb")
        for match in _ENGLISH_PERFECT.finditer(text)
        if match["verb"].lower() not in _ENGLISH_ACTS
    ]
    for match in _ENGLISH.finditer(text):
        before = [word for word in match["before"].lower().split() if word not in _BETWEEN]
        is_state = not before or before[-1] in _STATE_BEFORE
        if not is_state and match["verb"].lower() not in _ENGLISH_ACTS:
            found.append(match.span("verb"))
    for pattern in _OTHER:
        for match in pattern.finditer(text):
            if not _ACTS.match(match["verb"]):
                found.append(match.span("verb"))
    return tuple(sorted(set(found)))
