"""Statements: what two sentences say about the same thing, read by rules.

A sentence is reduced to a slot (whose attribute it is about), a value, and whether it asserts,
denies or ends it. Two sentences are compared by that, and where there is no slot by their words.
Deciders that are models are checked against this reading before anything they want is applied.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from tallystick.pipeline.changes import (
    has_other_kind,
    is_aligned,
    is_ended,
    is_other_one,
    is_reassigned,
    named_old_value,
    read,
    revalued,
    says_a_change,
)
from tallystick.pipeline.phrases import (
    CHANGED,
    ENDED,
    FILLER,
    GRAMMAR,
    NEGATED,
    RETRACTED,
    Phrase,
    phrases,
)
from tallystick.pipeline.tense import tells_a_change
from tallystick.ranking import analyze, query_terms

Relation = Literal["same", "changed", "opposite", "retracted", "unrelated"]
"""How a sentence relates to an earlier one: it says the same, says that it is otherwise now, denies
or ends it, takes it back, or is about something else.
"""

_SAME = 0.85
"""Part of the words that two sentences without a slot share at least, to say the same."""
_CLOSE = 0.6
"""Part of the words of the shorter one that two sentences share at least, to be about the same."""

_USER = phrases(
    r"i(?![^\W_])",
    r"i'm|i've|i'd|i am",
    r"my(?![^\W_])",
    r"me(?![^\W_])",
    r"we(?![^\W_])",
    "we've|we're",
    r"our(?![^\W_])",
    r"us(?![^\W_])",
    "the user(?:'s)?",
    r"ich(?![^\W_])",
    r"mein\w*",
    r"wir(?![^\W_])",
    r"unser\w*",
    r"mir(?![^\W_])",
    r"mich(?![^\W_])",
    r"je(?![^\W_])",
    r"j['’]",
    r"m['’]",
    r"mon(?![^\W_])",
    r"ma(?![^\W_])",
    r"mes(?![^\W_])",
    r"notre|nos(?![^\W_])",
    r"nous(?![^\W_])",
    r"moi(?![^\W_])",
    r"yo(?![^\W_])",
    r"mis?(?![^\W_])",
    r"nuestr\w+",
    r"mio|mia|miei|nostr\w+",
    r"meu|minha|noss\w+",
    "我",
)
_END = r"(?![^\W_])"
_REST = r"(?P<v>[^,;:.!?。，]+(?:[.,:]\d[^,;:.!?。，]*)*)"

_SLOTS: tuple[tuple[str, Phrase], ...] = tuple(
    (name, phrases(alternative))
    for name, alternatives in (
        (
            "residence",
            (
                r"(?:lives?|living|lived|resides?|based|settled)(?: now| currently| together"
                rf"| alone)* (?:in|at|near) (?:the )?{_REST}",
                r"(?:moved|relocated|moving|relocating)(?: back| away| out"
                rf"| house)*(?: from [^,;.]+?)? (?:to|into) (?:the )?{_REST}",
                r"(?:wohn\w+|leb(?:e|t|en|ten|te)|lebe)(?: ich| wir)?(?: jetzt| nun| nicht mehr"
                rf"| seit \w+| inzwischen| mittlerweile| noch)* in (?:der )?{_REST}",
                r"(?:nach|in) (?P<v2>[^\W\d_][\w-]+(?: [A-ZÄÖÜ][\w-]+)?)(?: um)?gezogen",
                r"(?:habite|vis|vit|habitons|vivons)(?: maintenant| désormais| plus"
                rf"| toujours)* (?:à|en|au|aux|dans) {_REST}",
                rf"déménagé(?: \w+)? (?:à|en|au|vers) {_REST}",
                rf"(?:vivo|vive|vivimos|resido)(?: ahora| ya)* en {_REST}",
                rf"(?:mudé|mudamos|mudado) (?:a|para) {_REST}",
                rf"(?:vivo|abito|vive|abita)(?: ora| adesso)* (?:a|in) {_REST}",
                rf"trasferit[oa] (?:a|in) {_REST}",
                rf"(?:moro|vivo)(?: agora)* (?:em|no|na) {_REST}",
                r"(?:住在|搬到了?|搬去)(?P<v3>[^，。,.]+)",
            ),
        ),
        (
            "employer",
            (
                rf"(?:works?|working|worked)(?: now| currently)* (?:at|for) {_REST}",
                r"(?:joined|employed (?:at|by)|hired by|started(?: a new job| working)? at"
                rf"|a new job at|(?:new|current) employer is) {_REST}",
                rf"(?:arbeite\w*)(?: jetzt| nun| nicht mehr| inzwischen)* (?:bei|für) {_REST}",
                rf"(?:travaille\w*)(?: maintenant| désormais| plus)* (?:chez|pour) {_REST}",
                rf"(?:trabaj\w+)(?: ahora| ya)* (?:en|para) {_REST}",
                rf"(?:lavor\w+)(?: ora| adesso)* (?:per|presso|in|da) {_REST}",
                rf"(?:trabalh\w+)(?: agora)* (?:na|no|em|para) {_REST}",
                r"在(?P<v2>[^，。,.]+?)(?:工作|上班)",
            ),
        ),
        (
            "name",
            (
                rf"(?:my name is|call me|i(?:'m| am) called|i go by) {_REST}",
                rf"(?:ich heiße|je m'appelle|me llamo|mi chiamo|me chamo) {_REST}",
                r"(?:我叫|我的名字是)(?P<v2>[^，。,.]+)",
            ),
        ),
        (
            "age",
            (
                r"(?:i(?:'m| am)|turned|is) (?P<v>\d{1,3})(?: years? old| now|$|\.)",
                r"ich bin (?:jetzt )?(?P<v2>\d{1,3})",
                r"j'ai (?P<v3>\d{1,3}) ans",
                r"tengo (?P<v4>\d{1,3}) años",
            ),
        ),
        (
            "switch",
            (
                r"(?:switched|migrated|moved|changed|going|went|switching|migrating"
                rf"|moving)(?: over)? from (?P<old>[^,;.]+?) to (?:using )?{_REST}",
                r"(?:replaced|replacing|replace|swapped) (?P<old2>[^,;.]+?) (?:with|by"
                rf"|for) {_REST}",
                r"(?:use|uses|using|prefer|go with|adopt|chose"
                r"|picked)s? (?P<v2>[^,;.]+?) (?:instead of|rather than|over"
                r"|not) (?P<old3>[^,;.]+)",
                r"von (?P<old4>\w+) (?:auf|zu) (?P<v3>\w+) (?:umgestiegen|gewechselt|migriert"
                r"|umgestellt)",
                rf"(?:passés?|migré|changé) de (?P<old5>\w+) à {_REST}",
                rf"(?:pasamos|migramos|cambiamos|cambiado|migrado) de (?P<old6>\w+) a {_REST}",
            ),
        ),
        (
            "likes",
            (
                r"(?:likes?|loves?|liked|loved|enjoys?|adores?|prefers?|hates?|dislikes?"
                r"|can'?t stand|(?:a |big |huge )*fan of|fond of|keen on|sick of)"
                rf"(?: to| it when)? {_REST}",
                r"(?:mag|mögen|liebe|lieben|liebt|hasse|hasst|bevorzuge)(?: ich)?(?: jetzt| nun"
                rf"| inzwischen)*(?: keine?n?| nicht)? {_REST}",
                r"(?:aime|aimons|adore|déteste|préfère|supporte)(?: pas| plus| maintenant"
                rf"| beaucoup)* (?:le |la |les |l')?{_REST}",
                r"(?:gustan?|encantan?|prefiero|odio|detesto|adoro)(?: más| mucho"
                rf"| ahora)* (?:el |la |los |las )?{_REST}",
                r"(?:piace|piacciono|preferisco|odio|adoro|detesto) (?:il |lo |la |i |gli "
                rf"|le )?{_REST}",
                rf"(?:gosto|prefiro|odeio|adoro|detesto)(?: mais)? (?:de |do |da )?{_REST}",
                r"(?:喜欢|爱|讨厌|偏好)(?P<v2>[^，。,.]+)",
            ),
        ),
        (
            "has",
            (
                r"(?:have|has|had|own|owns|got|keep|adopted|bought|sold|gave away|got rid of"
                rf"|lost)(?: not)? (?:an? |any |my |our |the |two |three )?{_REST}",
                r"(?:habe|hat|haben|besitze)(?: jetzt| nun)* (?:einen? |eine |keine?n? "
                rf"|meinen? )?{_REST}",
                rf"(?:ai|avons|a) (?:un |une |plus de |pas de |deux ){_REST}",
                rf"(?:tengo|tenemos|tiene) (?:un |una |dos )?{_REST}",
                r"(?:养了|有|没有)(?P<v2>[^，。,.]+)",
            ),
        ),
    )
    for alternative in alternatives
)
_COPULA = Phrase(
    r"^(?P<k>.{2,80}?)(?:(?<=\w)'s (?:now|currently|no longer) |"
    r"\s+(?:(?:is|are|was|were|will be|'s)(?: now| currently| actually| still| no longer"
    r"| not)*(?: set to| scheduled for| due| called"
    r"| named| at| on| in| to be)?"
    r"|(?:has|have)(?: now)? (?:been )?(?:moved|changed|switched|increased|decreased|raised"
    r"|lowered|reduced|postponed|rescheduled|updated|renamed)"
    r"(?: from [^,;]+?)? (?:to|until|by)"
    r"|(?:moved|changed|switched|rose|fell|went up|went down|increased|decreased"
    r"|shifted)(?: from [^,;]+?)? to"
    r"|costs|starts(?: at| on)?|ends(?: at| on)?|begins(?: at| on)?|runs on|listens on|lives in"
    r"|uses|takes|opens at|closes at|expires on|turned"
    r"|ist(?: jetzt| nun| nicht mehr| inzwischen)*(?: am| um| in| auf)?|sind(?: jetzt)?"
    r"|lautet(?: jetzt)?|heißt(?: jetzt)?|beträgt(?: jetzt)?"
    r"|kostet(?: jetzt)?|beginnt(?: jetzt)?(?: um| am)?|läuft(?: jetzt)? auf|nutzt(?: jetzt)?"
    r"|wurde (?:auf|in)|est(?: maintenant| désormais| plus)*(?: le| à| en)?|sont(?: maintenant)?"
    r"|s'appelle|coûte(?: maintenant)?|commence(?: maintenant)?(?: à| le)?"
    r"|a été (?:reporté|déplacé|changé|avancé)e? (?:à|au|en)"
    r"|es(?: ahora| ya no)*(?: el| a| en)?|son|está(?: ahora)?(?: en)?|se llama|cuesta(?: ahora)?"
    r"|empieza(?: ahora)?(?: a| el)?|se (?:ha )?(?:cambió|movió|aplazado|cambiado|aplazó) (?:a|al"
    r"|para)"
    r"|è(?: ora| adesso)*(?: il| a| in)?|sono|si chiama|costa(?: ora)?|é(?: agora)*|são|chama-se"
    r"|custa(?: agora)?)\s+)"
    r"(?P<v>.+)$",
    re.IGNORECASE,
)
_WAS = Phrase(
    r"\s+(?:was|were|war|waren|était|étaient|era|eran|erano|eram)\s+(?!(?:set|moved|changed|put)\b)",
    re.IGNORECASE,
)
"""The copula of what was so, which may be so no longer."""
_ZH_COPULA = Phrase(r"^(?P<k>.{2,20}?)(?:现在)?(?:是|叫|改为|改成|改到)(?P<v>.+)$")
_POSSESSIVE = Phrase(
    r"^(?:(?:actually|correction|update|from now on|as of \w+|now|also|btw|fyi|and|but|so"
    r"|note that|remember that|jetzt|maintenant|ahora"
    r"|desde ahora|ab sofort|désormais|correction)[,:]?\s+)*(?:my|our|the|a|an|mein\w*|unser\w*"
    r"|der|die|das|mon|ma|mes|notre|le|la|les|l'|mi|mis|nuestr\w+"
    r"|el|los|las|il mio|la mia|il|lo|gli|meu|minha|o|我的)?\s*",
    re.IGNORECASE,
)
_THING = Phrase(r"^(?:the|our|this|der|die|das|unser\w*|le|la|notre|el|nuestr\w+) ", re.IGNORECASE)
"""The beginning of a sentence about a thing, which moves to a day or a value and lives nowhere."""
_PRONOUN = Phrase(
    r"(?:^|[^\w])(?:i|we|i've|i'm|we've|we're|ich|wir|je|j['’]|nous|on|yo|nosotros|io|noi|eu|nós)"
    r"(?:['’ ]+[\w'’]+){0,3}\s*$|[我们]+[现在已经]*$|^(?:user|the user)\s*$",
    re.IGNORECASE,
)
_FUNCTIONAL = frozenset({"residence", "employer", "name", "age"})
"""Attributes of which somebody has one at a time."""
_AVERSION = phrases(
    r"(?:hates?|dislikes?|can'?t stand|cannot stand|sick of|tired of|detests?|despises?)" + _END,
    r"(?:hasse|hasst|verabscheue|déteste|odio|odia|detesto|odeio|讨厌)",
)
_PARTING = phrases(
    r"(?:sold|gave away|got rid of|lost|verkauft|vendu|vendí|vendido|quit|stopped|gave up)" + _END
)
_VALUE_KIND = (
    ("time", Phrase(r"\b\d{1,2}(?::\d{2}| ?[ap]\.?m\.?| uhr|h\d{0,2}\b)", re.IGNORECASE)),
    (
        "day",
        Phrase(
            r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|montag|dienstag|mittwoch"
            r"|donnerstag|freitag|samstag|sonntag|lundi|mardi"
            r"|mercredi|jeudi|vendredi|samedi|dimanche|lunes|martes|miércoles|jueves|viernes"
            r"|sábado|domingo|january|february|march|april"
            r"|may|june|july|august|september|october|november|december|januar|februar|märz|mai"
            r"|juni|juli|oktober|dezember|janvier|février"
            r"|mars|avril|juin|juillet|août|enero|febrero|marzo|abril|mayo|junio|julio|agosto"
            r"|octubre|diciembre|tomorrow|\d{4}-\d\d-\d\d)\b",
            re.IGNORECASE,
        ),
    ),
    ("number", Phrase(r"\d")),
    (
        "state",
        Phrase(
            r"^(?:very |really |quite |too |not |so )*[a-z]+(?:ed|ing|ful|able|ible|ous|ive|al|y"
            r"|ish|ic)?\W*$"
        ),
    ),
)


_LEAD_IN = Phrase(
    r"^(?:(?:by the way|btw|fyi|as (?:i|we) (?:said|mentioned)|as you (?:may )?know|like i said"
    r"|well|oh|so|and|but|also|actually|in fact|just so you know|note that|remember that"
    r"|for the record|übrigens|wie gesagt|au fait|comme je l'ai dit|por cierto|como dije)"
    r"(?:,\s*|\s+(?=that\b|i\b|my\b|we\b|our\b))(?:that\s+)?)+",
    re.IGNORECASE,
)
"""Words before a statement that say nothing of it."""
_RETRACTING = Phrase(
    r"\b(?:please|remove|delete|erase|wipe|take|forget|from|out of|your|memory|notes?|records?)\b",
    re.IGNORECASE,
)
_STORE = Phrase(
    r"\b(?:from|out of|in) (?:your|the) (?:notes?|memor(?:y|ies)|records?|files?|notebook"
    r"|history)\b"
    r"|\b(?:aus|in) (?:deine[nmr]|eure[nmr]|ihre[nmr]|de[nmr]) (?:notizen|gedächtnis"
    r"|erinnerung(?:en)?|aufzeichnungen|unterlagen)\b"
    r"|\bde (?:tes|ta|vos|votre) (?:notes|mémoires?|souvenirs|dossiers)\b"
    r"|\bde (?:tus?|sus?|la|las) (?:notas?|memoria|recuerdos?|registros?)\b"
    r"|\b(?:dai|dalla|dalle) (?:tuoi|tua|tue|suoi) (?:appunti|memoria|ricordi|note)\b"
    r"|\bd[ao]s? (?:suas?|tuas?|seus?|teus?) (?:notas?|memórias?|registros?|apontamentos)\b"
    r"|\buit (?:je|jouw|uw|het) (?:geheugen|notities|aantekeningen)\b"
    r"|从你的?(?:记录|记忆|笔记)[里中]?",
    re.IGNORECASE,
)
"""Where something is kept, which is not what is taken back."""
_SAID = Phrase(
    r"^\s*(?:i|we|ich|j'ai|je t'ai|he|ho|eu)?\s*(?:have |habe |te )?(?:said|told you|wrote"
    r"|mentioned|noted|gesagt|dit|dicho|dije|detto|disse)?"
    r"\s*(?:earlier|before)?\s*(?:about|that|über|sur|sobre|de|di)?\s*",
    re.IGNORECASE,
)
"""The words between taking back and what is taken back."""


@dataclass(frozen=True)
class Statement:
    """A sentence as the rules read it."""

    terms: frozenset[str]
    """Its words of meaning, stemmed."""
    subject: frozenset[str]
    """Whom or what it is about, as far as the slot says."""
    slot: str | None
    """The attribute that it gives a value."""
    value: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()
    """A value that it says was there before."""
    shape: str = ""
    """The kind of the value, such as `number` or `day`."""
    positive: bool = True
    ended: bool = False
    changed: bool = False
    retracts: bool = False
    of_user: bool = False
    numbers: frozenset[str] = frozenset()

    @property
    def is_functional(self) -> bool:
        """True if it gives an attribute of which somebody has one at a time."""
        return self.slot in _FUNCTIONAL


class Comparison(NamedTuple):
    """How a sentence relates to an earlier one, and how sure the rules are, in percent."""

    relation: Relation
    confidence: int
    support: float
    """The part of their words that they share, between 0 and 1, more with a common slot."""


_NEIGHBOURS = {
    "residence": "live in moved to wohne in lebe in habite vis à vivo en abito moro 住在",
    "employer": "work at work for joined arbeite bei travaille chez trabajo en lavoro per 工作",
    "name": "my name is call me ich heiße je m'appelle me llamo 我叫",
    "age": "years old ich bin j'ai ans tengo años",
}
"""Words of other sentences that may give the same attribute another value."""


def queries_about(text: str) -> list[str]:
    """Return the queries by which memories are found that a sentence may be about: its own words,
    and those in which the same attribute is said otherwise.
    """
    read = read_statement(text)
    queries = [text]
    if read.slot in _NEIGHBOURS:
        whom = " ".join(sorted(read.subject))
        queries.append(f"{whom} {_NEIGHBOURS[read.slot]}".strip())
    elif read.replaced:
        queries.append(" ".join(sorted(read.replaced)))
    return queries


@lru_cache(maxsize=4096)
def read_statement(text: str) -> Statement:
    """Return a sentence as the rules read it. Pure."""
    plain = _LEAD_IN.sub("", text.strip().rstrip(".!。 "))
    retraction = RETRACTED.search(plain)
    retracts = retraction is not None
    if retraction is not None:
        place = _STORE.search(plain)
        matter = plain
        if place is not None:
            blank = " " * len(place.group())
            matter = plain[: place.start()] + blank + plain[place.end() :]
        after = _SAID.sub("", matter[retraction.end() :])
        # "What I said about the boat is wrong, forget it": the matter may come first.
        before = _SAID.sub("", matter[: retraction.start()])
        # "Please wipe my locker code from your memory" has it in between.
        inside = _RETRACTING.sub(" ", matter[slice(*retraction.span())])
        is_inside = place is not None and retraction.start() < place.start() < retraction.end()
        order = (inside, after, before) if is_inside else (after, before, inside)
        plain = next((each for each in order if _strict_terms(each)), "")
    terms = _terms(plain)
    ended = ENDED.search(plain) is not None
    # "not only" and "no problem" deny nothing; what ended is denied too.
    positive = NEGATED.search(plain) is None and not ended
    slot, value, replaced, subject, shape = (
        None,
        frozenset[str](),
        frozenset[str](),
        frozenset[str](),
        "",
    )
    of_user = _USER.search(plain) is not None
    for name, pattern in _SLOTS:
        match = pattern.search(plain)
        if match is None:
            continue
        groups = {key: text for key, text in match.groupdict().items() if text}
        given = next((text for key, text in groups.items() if key.startswith("v")), "")
        old = next((text for key, text in groups.items() if key.startswith("old")), "")
        slot, value, replaced = name, _terms(given), _terms(old)
        before = plain[: match.start()]
        is_user = not before.strip() or _PRONOUN.search(before) is not None
        subject = frozenset() if is_user else _strict_terms(before)
        shape = _shape(given)
        if name == "likes" and _AVERSION.search(match.group()) is not None:
            positive = not positive
        if name == "has" and _PARTING.search(match.group()) is not None:
            positive = False
        break
    copula = None
    if slot in (None, "has", "likes") or (slot == "residence" and _THING.match(plain) is not None):
        copula = _COPULA.match(plain) or _ZH_COPULA.match(plain)
    if copula is not None:
        key = _terms(_POSSESSIVE.sub("", copula["k"], count=1))
        was = _WAS.match(copula[0][copula.end("k") :]) is not None and not tells_a_change(plain)
        if key and len(key) <= 6 and not was and not _is_pronoun(copula["k"]):
            slot, subject = "is", key
            value, shape = _terms(copula["v"]) - key, _shape(copula["v"])
    return Statement(
        terms=terms,
        subject=subject,
        slot=slot,
        value=value,
        replaced=replaced,
        shape=shape,
        positive=positive,
        ended=ended,
        changed=CHANGED.search(plain) is not None or bool(replaced),
        retracts=retracts,
        of_user=of_user,
        numbers=frozenset(re.findall(r"\d+(?:[.,:]\d+)*", plain)),
    )


def compare(new: str, old: str) -> Comparison:
    """Return how a sentence relates to an earlier one. Pure; it does not matter which of them is
    stored.
    """
    fact, earlier = read_statement(new), read_statement(old)
    shared = fact.terms & earlier.terms
    smaller = min(len(fact.terms), len(earlier.terms)) or 1
    overlap = len(shared) / smaller
    likeness = len(shared) / (len(fact.terms | earlier.terms) or 1)
    support = max(overlap * 0.8, likeness)
    if fact.retracts:
        # What is taken back is named after the phrase: most of an earlier sentence, or its topic.
        if shared and overlap >= _CLOSE:
            return Comparison("retracted", 90 if overlap >= 0.75 else 75, max(support, overlap))
        return Comparison("unrelated", 0, support)
    by_slot = _compare_slots(fact, earlier, likeness, says_a_change(read(new), read(old)))
    if by_slot is not None and by_slot[0] == "changed" and has_other_kind(read(new), read(old)):
        by_slot = None
    if by_slot is not None:
        return Comparison(by_slot[0], by_slot[1], max(support, 0.9 if by_slot[1] >= 80 else 0.6))
    if earlier.retracts:
        return Comparison("unrelated", 0, support)
    if likeness >= _SAME and fact.positive == earlier.positive and fact.numbers == earlier.numbers:
        return Comparison("same", round(100 * likeness), support)
    if likeness >= 0.7 and fact.positive != earlier.positive and fact.numbers == earlier.numbers:
        return Comparison("opposite", 85, support)
    if overlap >= 0.75 and fact.ended and earlier.positive and fact.of_user == earlier.of_user:
        return Comparison("opposite", 85, support)
    return _compare_words(new, old, fact, earlier, support)


def _compare_words(
    new: str, old: str, fact: Statement, earlier: Statement, support: float
) -> Comparison:
    """Return how a sentence relates to an earlier one by its values and its topic."""
    now, before = read(new), read(old)
    if fact.retracts or before.is_ended:
        return Comparison("unrelated", 0, support)
    if named_old_value(now, before):
        return Comparison("changed", 88, max(support, 0.85))
    if is_ended(now, before):
        return Comparison("opposite", 86, max(support, 0.85))
    confidence = revalued(now, before) if fact.positive == earlier.positive else 0
    if confidence:
        return Comparison("changed", confidence, max(support, 0.8))
    if is_reassigned(now, before) or is_other_one(now, before):
        return Comparison("changed", 85, max(support, 0.85))
    if says_a_change(now, before) and fact.positive == earlier.positive and is_aligned(now, before):
        return Comparison("changed", 82, max(support, 0.7))
    return Comparison("unrelated", 0, support)


def _compare_slots(
    fact: Statement, earlier: Statement, likeness: float, is_change: bool
) -> tuple[Relation, int] | None:
    if fact.slot is None or earlier.slot is None:
        return None
    if fact.slot != earlier.slot:
        return None
    if fact.of_user != earlier.of_user and (fact.subject or earlier.subject):
        return "unrelated", 0
    if fact.is_functional:
        if fact.subject != earlier.subject:
            return "unrelated", 0
        if _alike(fact.value, earlier.value):
            if fact.positive == earlier.positive:
                return "same", 95
            return "opposite", 92
        if not earlier.positive or not fact.positive:
            return "unrelated", 0  # somebody who no longer lives in Bonn may live anywhere
        return "changed", 92 if is_change else 85
    if fact.slot in ("likes", "has"):
        if fact.subject != earlier.subject or not fact.value or not earlier.value:
            return "unrelated", 0
        if not _alike(fact.value, earlier.value):
            return None
        if fact.positive != earlier.positive:
            return "opposite", 90
        if fact.numbers != earlier.numbers:
            return None
        return ("same", 92) if likeness >= 0.6 else None
    if fact.slot == "is":
        if not _same_key(fact.subject, earlier.subject):
            return None
        if fact.value == earlier.value or (
            _alike(fact.value, earlier.value) and fact.numbers == earlier.numbers
        ):
            if fact.positive == earlier.positive:
                return "same", 93
            return "opposite", 88
        if not fact.positive or not earlier.positive:
            return None
        if fact.shape == earlier.shape and fact.subject == earlier.subject:
            return "changed", 90 if is_change or fact.shape in ("number", "day", "time") else 82
        return ("changed", 80) if is_change and fact.subject == earlier.subject else None
    return None


def _alike(first: frozenset[str], second: frozenset[str]) -> bool:
    """Return True if two values name the same: one is the other with more words."""
    return bool(first and second) and (first <= second or second <= first)


def _same_key(first: frozenset[str], second: frozenset[str]) -> bool:
    return bool(first) and (first == second or len(first & second) / len(first | second) >= 0.75)


def _is_pronoun(key: str) -> bool:
    return key.strip().lower() in (
        "i",
        "it",
        "he",
        "she",
        "they",
        "we",
        "this",
        "that",
        "there",
        "ich",
    )


def _shape(value: str) -> str:
    value = value.strip()
    for name, pattern in _VALUE_KIND:
        if pattern.search(value) is not None:
            return name
    return "name" if value[:1].isupper() else "words"


def _terms(text: str) -> frozenset[str]:
    """Return the words of meaning of a text, stemmed, without grammar and words of change."""
    words = analyze(text)
    terms = frozenset(word for word in words if word not in _DROPPED)
    return terms or frozenset(query_terms(text))


def _strict_terms(text: str) -> frozenset[str]:
    """Return the words of meaning of a text; none where it has only words of grammar."""
    return frozenset(word for word in analyze(text) if word not in _DROPPED)


_DROPPED = (
    frozenset(token for word in (*FILLER, *GRAMMAR) for token in analyze(word)) | GRAMMAR | FILLER
)
