"""Changes: how a sentence without a common slot refers to what it replaces or ends.

Three readings, all by grammar. A *value* of a kind, such as a day or a price, that differs where
the rest of both sentences is about the same topic. An *old value* that the sentence names itself
("from X to Y", "X instead of Y"). And a topic that *ended*, which an earlier sentence asserts.
Two sentences are about one topic only if the words of one are among those of the other: where each
has words that the other lacks ("free users", "paid users"), they are about two things.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from tallystick.pipeline.phrases import CHANGED, ENDED, FILLER, GRAMMAR, NEW, Phrase
from tallystick.pipeline.tense import happenings
from tallystick.ranking import analyze

_MONTHS = (
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december"
    r"|januar|februar|märz|mai|juni|juli|oktober|dezember|janvier|février|mars|avril|juin|juillet"
    r"|août|septembre|octobre|novembre|décembre|enero|febrero|marzo|abril|mayo|junio|julio|agosto"
    r"|septiembre|octubre|noviembre|diciembre|gennaio|febbraio|aprile|maggio|giugno|luglio"
    r"|settembre|ottobre|dicembre|janeiro|fevereiro|março|maio|junho|julho|setembro|outubro"
    r"|novembro|dezembro|maart|augustus|mei|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)"
)
_WEEKDAYS = (
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|tomorrow|tonight"
    r"|(?:montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonnabend|sonntag)s?"
    r"|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche"
    r"|lunes|martes|miércoles|jueves|viernes|sábados?|domingos?"
    r"|lunedì|martedì|mercoledì|giovedì|venerdì|sabato|domenica"
    r"|(?:segunda|terça|quarta|quinta|sexta)(?:-feira)?"
    r"|maandag|dinsdag|woensdag|donderdag|vrijdag|zaterdag|zondag)"
)
_NUMBER = r"\d+(?:[.,:\u202f ]\d{3})*(?:[.,]\d+)?"
_NUMBER_WORD = (
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty"
    r"|fifty|sixty|ninety|hundred|thousand|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn"
    r"|elf|zwölf|fünfzehn|zwanzig|dreißig|vierzig|fünfzig|deux|trois|quatre|cinq|sept|huit|neuf|dix"
    r"|onze|douze|quinze|vingt|trente|quarante|cinquante|tres|cuatro|cinco|seis|siete|ocho"
    r"|nueve|diez|doce|quince|veinte|treinta|cuarenta|cincuenta|tre|quattro|cinque"
    r"|sette|nove|dieci|dodici|quindici|venti|trenta|quaranta|dois|duas|três|quatro|sete|oito"
    r"|dez|vinte|twee|drie|vijf|zes|zeven|negen|tien|twaalf|twintig)"
)
_ZH_NUMBER = r"[\d一二两三四五六七八九十百千万]+"
_UNIT = (
    r"(?P<unit>%|percent|prozent|pour cent|por ciento|per cent|[kmgt]i?b(?![^\W_])|ms(?![^\W_])"
    r"|[^\W\d_]{3,})"
)
_SPANS = frozenset(
    """
    ms millisecond second minute hour day week month quarter year sekunde sekunden minuten stunde
    stunden tag tage tagen woche wochen monat monate monaten jahr jahre jahren seconde heure jour
    semaine moi an année segundo minuto hora día semana me mese año secondo ora giorno settimana
    settimane giorni ore minuti mesi anno anni dia mês meses ano uur dag dagen weken maand maanden
    jaar weke
    """.split()  # noqa: SIM905
)
"""Units of spans of time, without a plural s: two weeks become three days."""
_SIZE = re.compile(r"[kmgt]i?b|[kmgt]?bytes?")
_VALUES: tuple[tuple[str, Phrase], ...] = tuple(
    (name, Phrase(pattern, re.IGNORECASE))
    for name, pattern in (
        ("mail", r"(?<![\w.])[\w.+-]+@[\w-]+\.[\w.-]*\w"),
        ("link", r"https?://\S+\w"),
        ("day", r"\b\d{4}-\d\d-\d\d\b|\b\d{1,2}[./]\d{1,2}[./](?:\d{4}|\d\d)?(?!\d)"),
        (
            "day",
            rf"(?<!\w)\d{{1,2}}(?:\.|er|st|nd|rd|th|º|\.º)? ?(?:de |of |do )?{_MONTHS}(?!\w)"
            r"(?:,? (?:de )?\d{4})?",
        ),
        ("day", rf"(?<!\w){_MONTHS} \d{{1,2}}(?:st|nd|rd|th)?(?!\d)(?:,? \d{{4}})?"),
        ("day", rf"{_ZH_NUMBER}月{_ZH_NUMBER}[日号]|(?:周|星期|礼拜)[一二三四五六日天]"),
        (
            "time",
            r"(?<![\d.:])\d{1,2}(?::\d{2}(?: ?[ap]\.?m\b\.?)?| ?[ap]\.?m\b\.?| ?uhr(?: \d\d)?"
            r"|h(?:\d{2})?\b)|\b(?:a las|alle ore|alle|às|at|um) \d{1,2}\b(?![.:,]?\d|%)"
            rf"|\b(?:noon|midnight)\b|(?:上午|下午|早上|晚上|中午)?{_ZH_NUMBER}点[半\d]*分?",
        ),
        ("day", rf"(?<!\w){_WEEKDAYS}(?!\w)"),
        ("day", rf"(?<!\w)(?:in|im|en|until|till|bis|by|to|for|a) {_MONTHS}(?!\w)(?: \d{{4}})?"),
        ("phone", r"(?<![\w.])\+?\d[\d /-]{6,}\d(?!\w)"),
        (
            "money",
            rf"(?:[$€£¥]|usd|eur|chf) ?{_NUMBER}(?: ?[km]\b)?|{_NUMBER} ?(?:k )?(?:[$€£¥]|usd|eur"
            r"|chf|euros?|dollars?|pounds?|francs?|franken|pesos?|yen|yuan|reais)(?!\w)"
            rf"|{_ZH_NUMBER}(?:元|块|欧元|美元)",
        ),
        ("version", r"(?<![\w.])v\d+(?:\.\d+)*\b|(?<![\w.])\d+\.\d+\.\d+(?![\w.])"),
        (
            "time",
            rf"(?<!\w)(?:(?:at|until|till|um|bis|erst|à|a las|hasta las|alle|às|om|tot) "
            rf"(?:half past |quarter (?:past|to) |halb )?{_NUMBER_WORD}"
            r"(?: uhr| heures?|h| o['’]clock)?)"
            r"(?= *$| *[,;.])",
        ),
        (
            "number",
            r"(?<!\w)(?P<unit>port|room|platform|gate|lot|track|line|page|level|floor|version|zimmer"
            r"|raum|gleis|linie|seite|salle|quai|ligne|étage|sala|puerto|andén|página|binario|porta"
            rf"|linha|kamer|spoor) {_NUMBER}(?![\w.-])",
        ),
        ("number", rf"(?<![\w.,-]){_NUMBER}(?: ?{_UNIT})?"),
        ("number", rf"(?<![\w.,-]){_NUMBER_WORD} (?!times|mal|fois|veces|volte|vezes|keer){_UNIT}"),
        ("code", r"(?<!\w)(?=[\w-]*\d)(?=[\w-]*[^\W\d_])[\w-]+(?!\w)"),
        ("ordinal", r"\b(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth)\b"),
        (
            "switch",
            r"(?:(?<=is )|(?<=are )|(?<=was )|(?<=now )|(?<=ays )|(?<=ned )|(?<=hed ))(?:on|off)"
            r"(?=$|[,;]| (?:in|for|by|now|again|since|until|at)\b)|\b(?:enabled|disabled)(?= |$)"
            r"|\b(?:open|closed)$",
        ),
    )
)


def _stems(words: str) -> frozenset[str]:
    """Return words with their terms."""
    return frozenset(token for word in words.split() for token in (word, *analyze(word)))


_LIGHT_WORDS = """
bill fee price amount si next finally following total bei aan hacia heads meanwhile be been being
go goes going went come comes take takes took place happen happens start starts started begin
begins end ends run runs get gets got stay make made set put keep hold held use uses using used
work works plan planned schedule scheduled due occur move moved moving shift shifted push pushed
postpone postponed delay delayed reschedule rescheduled change changed bump bumped raise raised
rise rose increase increased lower lowered reduce reduced decrease decreased cut extend extended
slip slipped bring brought forward back switch switched swap swapped migrate migrated replace
replaced trade traded update updated become became turn turned cost costs call called named name
through via till until per each every daily weekly monthly yearly current currently previous
previously new old default first again already morning today tomorrow yesterday recently since as
up down over off out onto into after all too will shall can let one go live lives living address
finden findet fand statt stattfinden beginnt endet läuft wurde wurden wird worden geworden
verschoben verlegt geändert erhöht gesenkt gestiegen gefallen kostet beträgt liegt sind sein ab
jetzt künftig benutzen benutze nutzen nutze verwenden umgestiegen gewechselt gezogen uhr jeden
jede jeder morgens été passé passée décalé décalée reporté reportée déplacé déplacée avancé
avancée augmenté commence coûte utilisons utilise utiliser changé changée remplacé remplacée
devient chaque désormais pasó movió cambió subido bajado cambiado aplazado adelantado trasladado
usamos uso utilizamos cuesta empieza comienza hemos será queda cada stata stato spostata spostato
rinviata cambiato usiamo costa inizia sarà ogni passou passa para adiada mudou mudada usamos custa
começa é as às foi dos das al del zum zur ins beim aan op nu is naar wordt verplaatst verschoven
erst schon bereits nur only seulement sólo solo apenas pas
gebruiken gebruikt kost begint op het een wij tengo tienes tiene tenemos tienen tenho tem temos
abbiamo hanno hebben heeft heb avons avez ont possède held
"""
_LIGHT = _stems(_LIGHT_WORDS) | _stems(" ".join((*FILLER, *GRAMMAR)))
"""Words that say when or that something changed, and not what."""
_PREDICATES = _stems(
    """
    lead leads manage manages head heads drive drives ride rides own owns wear wears eat eats
    drink drinks write host hosts deploy store stores serve serves handle handles track tracks
    send read love prefer preferring like leitet fährt führt trinke conduit dirige boit lleva
    conduce guida beve dirige bebo rijdt leidt
    """
)
"""Verbs between a subject and the value that a later sentence names as the old one."""
_NAMING = _stems(
    """
    name number fact note thing story detail info information idea plan entry line point memory
    part bit remark date name nummer sache geschichte notiz eintrag info nom numéro histoire note
    chose nombre número cosa historia nota dato nome numero storia dati coisa história naam verhaal
    said told mention mentioned say wrote gesagt erzählt dit raconté dicho dije detto disse
    """
)
"""Words that call something a memory, and do not say of what."""
_ENDING = _stems("""
quit stop stopped gave give up away got rid sold sell cancel cancelled canceled called dropped
drop left leave removed abandoned retired decommissioned deprecated gone shut closed dissolved
broke divorced resigned phased out fell through longer anymore more aufgehört gekündigt verkauft
abgesagt abgeschafft aufgegeben arrêté arrêter vendu abandonné annulé résilié démissionné dejado
dejar vendí vendido cancelado cancelada abandonamos smesso smettere venduto cancellata deixei
vendi cancelada back pulled pull had turns schluss gemacht finally gestopt opgezegd lost finished
terminated revoked ended expired no nie nicht
""")
_ADVERBIAL = Phrase(
    r"(?:,? (?:because|since|as|due to|so|weil|da|parce que|porque|perché|omdat) .*"
    r"|\b(?:last|next|this) (?:year|month|week|spring|summer|autumn|fall|winter|night|\w+day)"
    r"|\b(?:in|since|seit|im|en|depuis|desde|da) (?:spring|summer|autumn|winter|early|late|frühjahr"
    rf"|sommer|herbst|{_MONTHS})(?: \d{{4}})?\b"
    r"|\b(?:(?:two|three|a few|some|\d+) )?(?:years?|months?|weeks?|days?) ago\b"
    r"|\b(?:letzt|vorig|dies)e[nsmr]? (?:jahr|monat|woche)\b"
    r"|\b(?:l['’]an(?:née)?|le mois|la semaine) derni(?:er|ère)\b|\bel (?:año|mes) pasado\b"
    r"|去年|上个月|上周|今年)",
    re.IGNORECASE,
)
"""When and why, which say nothing of what ended."""
_BESIDES = Phrase(
    r"\b(?:too|as well|also|another|additionally|auch|ebenfalls|noch ein\w*|aussi|également"
    r"|encore un|también|además|anche|inoltre|também|ook)\b|[也还]",
    re.IGNORECASE,
)
"""What a sentence says holds beside something else."""
_SEVERAL = Phrase(
    r"\b(?:speaks?|likes?|loves?|know|knows|plays?|supports?|visited|reads?|watch\w*|added|adds"
    r"|learns?|bought|ordered|friends?|spreche|mag|liebe|aime|parle|gusta|hablo|hurts?)\b"
    r"|\bmet (?:with |up )?(?:a|an|my|our|the|some|[A-Z]\w+)\b",
    re.IGNORECASE,
)
"""Sentences of which several hold at a time, as long as none says that something ended."""
_EPISODE = Phrase(
    r"\b(?:[Ii]|[Ww]e|[Hh]e|[Ss]he|[Tt]hey|[A-Z]\w+) (?:have |has |had )?(?:now )?(?:paid|ate"
    r"|saw|met|watched|went"
    r"|visited|bought|ordered|ran|spent|drank|read|walked|cooked|called|sent|wrote|finished|talked"
    r"|spoke|slept|drove|flew|received|sold|won|lost|played|posted|fixed|merged|attended|had)\b"
)
"""Something that happened once: the next time replaces nothing."""
_HAN = re.compile("[\u4e00-\u9fff]")
_HAN_LIGHT = re.compile(
    "我们|我|现在|已经|不再|不用|不|没有|没|每天|每周|改到|改为|改成|换成|换到|推迟到|提前到|涨到|降到"
    "|搬到|搬去|取消|停止|开始|辞职|戒|卖掉|卖|把|将|从|到|的|了|在|是|也|都|就|叫|用|做|被|这个|那个|那条|这条|说过|说"
)
"""Words of grammar and change; without spaces they would be parts of the words around them."""
_IDENTIFYING = ("number", "code", "phone", "ordinal", "version", "mail", "link")
"""Kinds of values that may tell which thing a sentence is about."""
_GOAL = tuple(
    Phrase(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:has|have|had|was|were|been|got) (?:now |just |also |since |already )*(?:been "
        r"|being )?"
        r"(?P<verb>\w+(?:ed|en)|cut|put|set|brought|sent)(?: up| down| back| forward| out| over)?"
        r" (?:to|until|till|by(?= (?:\d|half|about|end)| \w+day))\b",
        r"\b(?:is|are) (?:now )?(?P<verb>delayed|postponed|up|down|back) (?:to|until|till|at)\b",
        r"\b(?:wurde|wurden|wird|werden|ist|sind)\b.{0,60}?\b(?:auf|in|nach|bis|um)\b .{1,40}?"
        r"(?P<verb>[^\W\d]+(?:t|en))$",
        r"\b(?:a|ont|est|sont|s['’]est)(?: été)? (?P<verb>(?!lieu)[^\W\d]+(?:ée?s?|ite?s?|ise?s?"
        r"|ue?s?))"
        r" (?:à|au|aux|en|jusqu)",
        r"\b(?:se|fue|fueron|ha sido|han sido|ha|han) (?P<verb>[^\W\d]+(?:ó|aron|ieron|jo|d[oa]))"
        r" (?:a|al|para|hasta|en)\b",
        r"\b(?:è|sono) (?:stat[oaie] )?(?P<verb>[^\W\d]+(?:at|it|ut|es|os|st)[oaie])"
        r" (?:a|al|alle|in|fino)\b",
        r"\b(?:foi|foram|se|mudou|passou) (?P<verb>[^\W\d]+d[oa]s?) (?:para|até)\b",
        r"\b(?P<verb>[^\W\d]+(?:ou|eu|iu)) (?:para|até)\b",
        r"(?P<verb>[\u4e00-\u9fff][到至])",
    )
)
"""A verb that brings its subject to a value: a change by its grammar, whatever the verb."""
_TAIL = Phrase(r"[,;] [^,;]*$")
_ROLE_WORDS = (
    "lead leads led head heads headed manage manages managed run runs ran own owns owned ownership "
    "chair chairs chaired coordinate coordinates maintain maintains supervise supervises oversee "
    "oversees responsible responsibility charge leader manager owner maintainer leitet leiten"
    " führt "
    "verantwortlich zuständig dirige dirigent gère responsable gestiona coordina lidera encarga "
    "gestisce guida responsabile coordena gere responsável leidt beheert verantwoordelijk took"
    " takes "
    "taken übernimmt übernommen"
)
_ROLE = _stems(_ROLE_WORDS)
_OF_USER = Phrase(
    r"(?<!\w)(?:i|my|we|our|ich|mein\w*|wir|unser\w*|je|j['’]|mon|ma|nous|notre|yo|mi|he"
    r"|nuestr\w+|io|mio"
    r"|mia|ho|eu|meu|minha|ik|mijn)(?!\w)|我(?![\u4e00-\u9fff]{0,3}的)",
    re.IGNORECASE,
)
_ROLE_ZH = re.compile("由|负责|管理|领导|主管")
_NEW_ONE = tuple(
    Phrase(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:a|to a|my) (?:different|new) (?P<thing>[^\W\d]+)",
        r"\b(?:changed|switched) (?:my |our )?(?P<thing>[^\W\d]+?)s?\b(?! (?:from|to))",
        r"\b(?:ander(?:en|er|em|e)|neuen?|neuer) (?P<thing>[^\W\d]+)",
        r"\b(?:den|die|das|meinen|meine|mein) (?P<thing>[^\W\d]+) gewechselt",
        r"\b(?:changé|cambiado|cambié|cambiato|mudei|mudado) (?:de |d['’]|di )(?P<thing>[^\W\d]+)",
        r"换了?一?[个位家]?(?P<thing>[\u4e00-\u9fff]{2})",
    )
)
"""The thing of which there is another one now."""
_BEARER = Phrase(
    r"^(?:my|our|mein|meine|unser|unsere|mon|ma|notre|mi|nuestr[oa]|il mio|la mia|o meu|a minha"
    r"|mijn"
    r"|我的) ?(?P<thing>[^\W\d_]+?) ?(?:(?<= )(?:is|heißt|ist|est|s['’]appelle|es|se llama|è"
    r"|si chiama|é)(?!\w)|是|叫)",
    re.IGNORECASE,
)
"""The thing that an earlier sentence names, such as somebody's doctor."""
_DETERMINERS = frozenset(
    """
    the a an my our your his her their its der die das den dem des ein eine einen einem einer mein
    meine meinen meiner meinem unser unsere unseren le la les un une mon ma mes notre nos el los
    las una mi mis nuestro nuestra il lo gli mio mia o os as meu minha de het een mijn onze
    """.split()  # noqa: SIM905
)
_FROM_TO = Phrase(
    r"\b(?:from|von|de|da|van) (?P<old>[^,;]{1,40}?) (?:to|auf|zu|nach|à|a|para|naar) ",
    re.IGNORECASE,
)
_OLD = tuple(
    Phrase(pattern, re.IGNORECASE)
    for pattern in (
        r"(?:switch(?:ed|ing)?|migrat(?:ed|ing)|mov(?:ed|ing)|chang(?:ed|ing)|went|converted)"
        r"(?P<topic> [^,;]{1,40}?)? from (?P<old>[^,;]{1,40}?) to (?P<new>[^,;]+)",
        r"(?:replac(?:ed|ing|es)|swapp(?:ed|ing)|trad(?:ed|ing)(?: in)?|exchanged|ditched|dropped)"
        r" (?P<old>[^,;]{1,40}?) (?:with|by|for|in favou?r of) (?P<new>[^,;]+)",
        r"(?P<new>[^,;]{1,60}?) (?:has |have )?(?:replaced|replaces|supersedes|took over from|"
        r"succeeds|succeeded) (?P<old>[^,;]+)",
        r"(?P<new>[^,;]{1,80}?) (?:instead of|rather than|in place of|anstelle (?:von|de[rs])"
        r"|anstatt|statt(?: de[rsmn])?|(?:au lieu|à la place)(?: de| du| des| d['’])"
        r"|en (?:vez|lugar) del?|invece (?:di|de[il]|dell[aoe]|degli)|(?:em vez|ao invés) d[eoa]s?"
        r"|in plaats van) (?P<old>[^,;]+)",
        r"(?P<new>[^,;]{1,80}?),? (?:not|nicht|pas|no) (?P<old>[^,;]{2,40}?)(?: any ?more)?$",
        r"(?P<old>[A-ZÀ-Þ]\w+) (?:has |have )?(?:handed|passed|gave|given"
        r"|turned) (?P<new>[^,;]{1,60}?)"
        r" (?:over |on )?to [A-ZÀ-Þ]\w+",
        r"(?P<old>[^,;]{1,40}?) (?:is|are|was) (?:out|gone|history|overbooked|dead"
        r"|full), (?P<new>.+)",
        r"\bleft (?P<old>[^,;]{1,40}?) for (?P<new>[^,;]+)",
        r"(?:nicht|no|non|pas|not)(?: mehr| longer)? (?P<old>[^,;]{2,40}?),? (?:sondern|but|sino"
        r"|ma|mais)"
        r" (?P<new>[^,;]+)",
        r"took over (?P<new>[^,;]{1,60}?) from (?P<old>[^,;]+)",
        r"(?P<old>[^,;:]{1,40}?) ?(?:->|→|=>) ?(?P<new>[^,;]+)",
        r"von (?P<old>[^,;]{1,40}?) (?:auf|zu|nach) (?P<new>[^,;]{1,40}?) (?:um|ge|migr|über)\w+",
        r"(?P<old>[^,;]{1,40}?) (?:durch|mit) (?P<new>[^,;]{1,40}?) (?:ersetzt|abgelöst|getauscht)",
        r"remplacé (?P<old>[^,;]{1,40}?) par (?P<new>[^,;]+)",
        r"(?:passée?s?|migré|basculé|changé) (?:de |d['’])(?P<old>[^,;]{1,40}?) (?:à|vers)"
        r" (?P<new>[^,;]+)",
        r"(?:cambiado|cambiamos|cambié|reemplazado|reemplazamos|sustituido) (?P<old>[^,;]{1,40}?)"
        r" por (?P<new>[^,;]+)",
        r"(?:pasado|pasamos|migrado|migramos|cambiado) de (?P<old>[^,;]{1,40}?) a (?P<new>[^,;]+)",
        r"(?:sostituito|cambiato|rimpiazzato) (?P<old>[^,;]{1,40}?) con (?P<new>[^,;]+)",
        r"(?:passati|passato|migrati) da (?P<old>[^,;]{1,40}?) a (?P<new>[^,;]+)",
        r"(?:trocamos|troquei|substituímos) (?P<old>[^,;]{1,40}?) por (?P<new>[^,;]+)",
        r"(?:overgestapt|gewisseld) van (?P<old>[^,;]{1,40}?) naar (?P<new>[^,;]+)",
        r"[把将](?P<old>[^，。]{1,20}?)(?:换成|改成|替换为|改为)了?(?P<new>[^，。]+)",
        r"从(?P<old>[^，。]{1,20}?)(?:换成|换到|迁移到|改用|转到)了?(?P<new>[^，。]+)",
    )
)
_INFLECTIONS = ("s", "es", "n", "en", "r", "er", "ing", "ed", "d", "t", "te", "nt", "e")
_MOST_EXTRA = 2
"""Words of topic that an earlier sentence about a value may have more."""
_REWORDED = 0.4
"""How alike recall finds a sentence and an earlier one at least that are worded differently."""
_UNSURE = 70
"""The confidence of a reading that a person decides about."""
_KIN = _stems(
    """
    mother father mom mum dad brother sister son daughter wife husband partner aunt uncle
    cousin grandma grandpa grandmother grandfather friend boss colleague neighbour neighbor
    flatmate roommate mutter vater bruder schwester sohn tochter frau mann tante onkel oma opa
    freund freundin chef chefin nachbar mère père frère soeur sœur fils fille femme mari ami
    amie voisin madre padre hermano hermana hijo hija esposa marido tía tío primo prima amigo
    amiga fratello sorella figlio figlia moglie marito zia zio amico amica mãe pai irmão irmã
    filho filha mulher tia tio moeder vader broer zus zoon dochter vrouw vriend
    """
)
"""People whose things are not somebody else's."""
_KIN_ZH = re.compile(
    "姐姐|妹妹|哥哥|弟弟|爸爸|妈妈|父亲|母亲|老婆|老公|妻子|丈夫|儿子|女儿|爷爷|奶奶|叔叔|阿姨|朋友|同事|室友|邻居|老板"
)


@dataclass(frozen=True)
class Reading:
    """A sentence as its values and the topic that they are values of."""

    values: tuple[tuple[str, str], ...]
    """Kinds of values with their unit, and the values, in the order of the text."""
    topic: frozenset[str]
    """The words of meaning that are no value and say nothing of change."""
    words: frozenset[str]
    """The words of meaning, values included."""
    order: tuple[str, ...]
    """Those words in the order of the text."""
    olds: tuple[tuple[frozenset[str], frozenset[str]], ...]
    """Each old value that the sentence names, with the rest of its topic."""
    ended_topic: frozenset[str]
    """The words of meaning without those that say that, when or why something ended."""
    is_changed: bool
    is_ended: bool
    is_episode: bool
    is_one_of_several: bool
    has_role: bool
    """True if somebody leads, owns or looks after something."""
    bearer: str | None
    """The thing of the user that the sentence names."""
    new_things: frozenset[str]
    """The words of meaning of what is called new."""
    new_ones: frozenset[str]
    """The things of which it says that there is another one."""
    is_of_user: bool
    kin: frozenset[str]
    """The people that a Chinese sentence names by how they are related to somebody."""
    neighbours: tuple[tuple[str, str, str], ...]
    """Each word with the one before it, determiners left out, and the one after it; nothing at an
    end of the sentence.
    """
    names: frozenset[str]
    """Words that are written with a capital, in lower case."""


@lru_cache(maxsize=4096)
def read(text: str) -> Reading:
    """Return a sentence with its values and topic. Pure."""
    plain = text.strip().rstrip(".!。 ")
    blank, values = plain, []
    goal = next((each for each in (one.search(plain) for one in _GOAL) if each is not None), None)
    told = happenings(plain)
    for start, end in (*told, *(() if goal is None else (goal.span("verb"),))):
        blank = blank[:start] + " " * (end - start) + blank[end:]
    replaced_value = _FROM_TO.search(plain)
    found: list[tuple[int, int, str, str]] = []
    for kind, pattern in _VALUES:
        for match in list(pattern.finditer(blank)):
            unit = (match.groupdict().get("unit") or "").casefold()
            start, end = match.span()
            if unit in _LIGHT and match.end("unit") == end:
                unit, end = "", match.start("unit")
            elif unit:
                kind = f"number {unit.rstrip('s')}"
            found.append((start, end, kind.strip(), plain[start:end].casefold()))
            blank = blank[:start] + " " * (end - start) + blank[end:]
    found.sort()
    for start, end, kind, value in found:
        is_old = replaced_value is not None and (
            replaced_value.start("old") <= start < replaced_value.end("old")
        )
        if kind.split()[0] in _IDENTIFYING and start != found[-1][0] and not is_old:
            # "Order 5521 is due on Monday": a number before the value tells which order.
            blank = blank[:start] + plain[start:end] + blank[end:]
        elif not is_old:
            values.append((_family(kind), " ".join(value.split())))
    tail = _TAIL.search(blank)
    if tail is not None and values and _content(_TAIL.sub("", plain)):
        # "…, doctor's orders": what follows the value says nothing of what it is the value of.
        blank = blank[: tail.start()]
    words = _content(plain)
    olds, is_ended = tuple(_olds(plain)), ENDED.search(plain) is not None
    return Reading(
        values=tuple(values),
        topic=frozenset(_content(blank)),
        words=frozenset(words),
        order=tuple(words),
        olds=olds,
        ended_topic=frozenset(_content(_ADVERBIAL.sub(" ", _main_clause(plain)))) - _ENDING,
        is_changed=CHANGED.search(plain) is not None or goal is not None,
        is_ended=is_ended,
        is_episode=_EPISODE.search(plain) is not None,
        is_one_of_several=_BESIDES.search(plain) is not None
        or (_SEVERAL.search(plain) is not None and not (is_ended or olds)),
        has_role=bool(_ROLE & frozenset(analyze(plain))) or _ROLE_ZH.search(plain) is not None,
        bearer=_thing(_BEARER.search(plain)),
        new_things=frozenset(
            word for match in NEW.finditer(plain) for word in _content(match["things"])
        ),
        new_ones=frozenset(
            thing
            for thing in (_thing(each.search(plain)) for each in _NEW_ONE)
            if thing is not None
        ),
        is_of_user=_OF_USER.search(plain) is not None,
        kin=frozenset(_KIN_ZH.findall(plain)),
        neighbours=tuple(_neighbours(plain)),
        names=frozenset(
            token for word in re.findall(r"\b[A-ZÀ-Þ]\w+", plain) for token in analyze(word)
        ),
    )


def _family(kind: str) -> str:
    """Return the kind of a value, in which spans of time are one and amounts of data are one."""
    unit = kind.removeprefix("number ")
    if unit in _SPANS:
        return "number span"
    return "number size" if _SIZE.fullmatch(unit) is not None else kind


def says_a_change(new: Reading, old: Reading) -> bool:
    """Return True if a sentence says that something changed, or that there is another one of what
    an earlier sentence is about.
    """
    return new.is_changed or bool(_matching(old.words, new.new_things))


def revalued(new: Reading, old: Reading) -> int:
    """Return how sure it is, in percent, that a sentence gives another value of the same kind to
    what an earlier one is about; 0 where it does not.

    It must say that something changed, or be worded alike. A topic that is only near gives a
    confidence that leaves the decision to a person.
    """
    if new.is_one_of_several or new.is_ended or not (new.topic and old.topic):
        return 0
    if not _is_other_value(new, old):
        return 0
    if _is_same(new.topic, old.topic):
        return 86 if says_a_change(new, old) else 0 if new.is_episode or old.is_episode else 81
    if not says_a_change(new, old):
        return 0
    more, less = _unmatched(old.topic, new.topic), _unmatched(new.topic, old.topic)
    if (more and less) or (more | less) & (new.names | old.names | _KIN):
        return 0
    return 83 if more and len(more) <= _MOST_EXTRA else _UNSURE


def has_other_kind(new: Reading, old: Reading) -> bool:
    """Return True if two sentences give values that cannot replace each other: an hour and a
    price.
    """
    if not (new.values and old.values):
        return False
    now, before = {kind for kind, _ in new.values}, {kind for kind, _ in old.values}
    if now & before:
        return False
    kinds = now | before
    is_bare = "number" in kinds and all(kind.startswith("number") for kind in kinds)
    return not is_bare


def _is_other_value(new: Reading, old: Reading) -> bool:
    now, before = dict(new.values), dict(old.values)
    kinds = [kind for kind in now if kind in before]
    if kinds:
        return any(now[kind] != before[kind] for kind in kinds)
    # One of two numbers may lack its unit: "raised from 30 to 90 days", "the limit is 90 now".
    first = [kind for kind in now if kind.startswith("number")]
    second = [kind for kind in before if kind.startswith("number")]
    return (
        bool(first and second)
        and "number" in (*first, *second)
        and now[first[0]].split()[0] != (before[second[0]].split()[0])
    )


def named_old_value(new: Reading, old: Reading) -> bool:
    """Return True if a sentence names the value that an earlier one gives, as the old one, and
    both are about one topic.
    """
    for value, topic in new.olds:
        if not value or not _covers(old.words, value):
            continue
        rest = old.words - _matching(old.words, value) - _PREDICATES
        if not rest and len(value) <= 3:
            return True
        if rest and topic and (_covers(topic, rest) or _covers(rest, topic)):
            return True
    return False


def is_ended(new: Reading, old: Reading) -> bool:
    """Return True if what a sentence says has ended is what an earlier one asserts."""
    if not new.is_ended or old.is_ended:
        return False
    topic = new.ended_topic - _LIGHT
    if not topic or not _covers(old.words, topic):
        return False
    extra = len(old.words) - len(topic)
    return extra <= 3 if len(topic) > 1 else extra <= 2


def is_about_another(new: Reading, old: Reading, *, likeness: float) -> bool:
    """Return True if two sentences without a relation that the rules read speak of two things, so
    that nobody's word makes one of them replace the other: their topics exclude each other, or
    both hold at a time.

    `likeness` is how alike recall finds them, from 0 to 1. It stands for the topic where a sentence
    is worded anew.
    """
    if has_other_kind(new, old) or new.is_one_of_several or (new.is_episode and old.is_episode):
        return True
    more, less = _unmatched(new.topic, old.topic), _unmatched(old.topic, new.topic)
    if (more | less) & _KIN or new.kin != old.kin:
        return True
    if not (more and less):
        return False
    is_same_value = not _is_other_value(new, old)
    if new.values and old.values and (is_same_value or _are_contrasted(new, more, old, less)):
        # Another thing with the value of this one, or with a value of its own.
        return True
    if len(more) > 1 and len(less) > 1 and likeness < _REWORDED:
        return True
    has_other_name = bool(more & new.names and less & old.names)
    return has_other_name and (len(more) > 1 or len(less) > 1 or not says_a_change(new, old))


def _are_contrasted(new: Reading, more: frozenset[str], old: Reading, less: frozenset[str]) -> bool:
    """Return True if a word that only one of two sentences has stands where the other has one of
    its own: "the login timeout" and "the upload timeout", "rent for the shop" and "for the flat".
    """
    before = {
        (side, word)
        for each, *sides in new.neighbours
        if each in more
        for side, word in enumerate(sides)
    }
    return any(
        (side, word) in before
        for each, *sides in old.neighbours
        if each in less
        for side, word in enumerate(sides)
    )


def takes_back_another(matter: frozenset[str], old: Reading) -> bool:
    """Return True if what a sentence takes back, as words of meaning, is something else than what
    an earlier one says: it names what the earlier one lacks.
    """
    named = matter - _LIGHT - _NAMING
    return not named or bool(_unmatched(named, old.words))


def is_reassigned(new: Reading, old: Reading) -> bool:
    """Return True if two sentences give one thing to two people who lead, own or look after it."""
    if not (new.has_role and old.has_role and says_a_change(new, old)):
        return False
    first, second = new.words - _ROLE, old.words - _ROLE
    new_holder, old_holder = _unmatched(first, second), _unmatched(second, first)
    shared = first - new_holder
    is_named = new_holder <= new.names and old_holder <= old.names
    return (
        bool(shared and new_holder and old_holder)
        and is_named
        and (max(len(new_holder), len(old_holder)) <= 2)
    )


def is_other_one(new: Reading, old: Reading) -> bool:
    """Return True if a sentence says that somebody has another one of what the earlier one names,
    such as another doctor.
    """
    is_own = new.is_of_user and not new.words & _KIN
    return old.bearer is not None and old.bearer in new.new_ones and is_own


def is_aligned(new: Reading, old: Reading) -> bool:
    """Return True if two sentences have one frame of at least two words, and one place in it that
    another name or word fills.
    """
    if new.is_one_of_several or old.is_one_of_several or new.is_episode or new.is_ended:
        return False
    if has_other_kind(new, old) or any(
        dict(old.values).get(kind, value) != value for kind, value in new.values
    ):
        return False
    first = [word for word in new.order if not _covers(old.words, {word})]
    second = [word for word in old.order if not _covers(new.words, {word})]
    shared = len(new.order) - len(first)
    if not (first and second) or max(len(first), len(second)) > 2 or shared < 2:
        return False
    gap = _gap(new.order, first)
    is_named = bool(set(first) & new.names), bool(set(second) & old.names)
    return gap is not None and gap == _gap(old.order, second) and is_named[0] == is_named[1]


def _gap(order: tuple[str, ...], words: list[str]) -> int | None:
    """Return the place of a run of words, or None where they stand apart."""
    start = order.index(words[0])
    return start if list(order[start : start + len(words)]) == words else None


def _unmatched(first: frozenset[str], second: frozenset[str]) -> frozenset[str]:
    """Return the words of the first that the second lacks."""
    return frozenset(word for word in first if not _covers(second, {word}))


def _is_same(first: frozenset[str], second: frozenset[str]) -> bool:
    return len(first) == len(second) and _covers(first, second)


def _covers(words: frozenset[str], wanted: frozenset[str] | set[str]) -> bool:
    """Return True if each of the wanted words is there, if need be with another ending."""
    return all(any(_is_one_word(word, each) for word in words) for each in wanted)


def _matching(words: frozenset[str], wanted: frozenset[str]) -> frozenset[str]:
    return frozenset(word for word in words if any(_is_one_word(word, each) for each in wanted))


def _is_one_word(first: str, second: str) -> bool:
    """Return True if two terms are one word. An ending that tells a woman from a man does not
    count: "hermano" and "hermana" are two.
    """
    if first == second:
        return True
    short, long = sorted((first, second), key=len)
    return len(short) >= 4 and long.startswith(short) and long[len(short) :] in _INFLECTIONS


def _main_clause(text: str) -> str:
    """Return the first clause that is more than an adverb or a label."""
    for clause in re.split(r"[,;，；] ?|: ", text):
        if len(_content(clause)) > 1 or ENDED.search(clause) is not None:
            return clause
    return text


def _neighbours(plain: str) -> Iterator[tuple[str, str, str]]:
    tokens = [
        (analyze(word) or [word.casefold()])[-1]
        for word in re.findall(r"\w+", plain)
        if word.casefold() not in _DETERMINERS
    ]
    for before, word, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
        yield word, before, after


def _thing(match: re.Match[str] | None) -> str | None:
    terms = [] if match is None else analyze(match["thing"])
    return terms[-1] if terms else None


def _olds(plain: str) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
    for pattern in _OLD:
        match = pattern.search(plain)
        if match is None:
            continue
        inside = match.groupdict().get("topic") or ""
        outside = " ".join((plain[: match.start()], inside, plain[match.end() :]))
        old, new = _content(match["old"]), _content(match["new"])
        # Either side may carry the topic: "we use X instead of Y for Z", "X for Z instead of Y".
        yield frozenset(old), frozenset((*_content(outside), *new))
        if len(old) > 1:
            for place in range(1, len(old)):
                yield frozenset(old[:place]), frozenset((*_content(outside), *new, *old[place:]))


def _content(text: str) -> list[str]:
    """Return the words of meaning in order, without repeats."""
    if _HAN.search(text) is not None:
        text = _HAN_LIGHT.sub(" ", text)
    return list(dict.fromkeys(word for word in analyze(text) if word not in _LIGHT))
