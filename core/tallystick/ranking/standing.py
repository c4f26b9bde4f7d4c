"""Standing instructions and preferences: what a text asks for from now on or would rather have, and
questions that ask for help, which they are meant for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]

_TRIGGERS = tuple(
    """
    always|never|from now|going forward|from here on|future|every time|everytime|
    each time|i ask|we ask|asks |any time|don't ever|don't you ever|ab jetzt|ab sofort|
    ab heute|von jetzt|von nun|künftig|zukunft|immer|nie|stets|à partir|désormais|
    dorénavant|toujours|jamais|en adelante|a partir|siempre|nunca|ora in poi|
    ora in avanti|sempre|vanaf nu|voortaan|altijd|nooit|od teraz|odtąd|zawsze|nigdy|
    отныне|с этого момента|впредь|всегда|никогда|从现在|以后|今后|总是|始终|永远|务必|
    每次|これから|今後|必ず|いつも|常に|앞으로|지금부터|항상|언제나|절대
    """.replace("\n", "")
    .replace("    ", "")
    .split("|")
)
"""What a standing instruction has one of: looked for first, as most texts have none."""
_BEGIN = (
    r"(?:^|[.!?:;\n。！？；]\s*)(?:[-*•]\s+)?(?:(?:and|but|also|so|ok|okay|yes|no|well|oh"
    r"|hey|und|ja|et|oui|y"
    r"|e|sí|en)[, ]\s*){0,2}"
)
_TELLING = (
    r"(?!(?:an?|the|been|had|so|too|such|as|very|really|on|in|at|with|for|up|down|out"
    r"|happy|glad|good"
    r"|great|nice|fun|love|hate|want|wish|mind|ever|thought|knew|felt|heard|saw|was|is"
    r"|are|were|again"
    r"|before|better|worth|more|less|late|busy|tired|hungry|there|here|something|someone|my|his|her"
    r"|their|i|we|he|she|they|you|it|afraid|full|calm|ready|gets?|makes me)\b|\w+(?:ed|ing)\b)"
)
"""A word after "always" that tells of something, rather than asks for it."""
_WHOEVER = r"(?:i|we|someone|somebody|anyone|anybody|a user|the user|users|people)"
_STANDING = re.compile(
    "|".join(
        (
            rf"{_BEGIN}(?:please |pls )?(?:always|never) {_TELLING}[a-z]{{2,}}\b(?! up\b)",
            rf"{_BEGIN}(?:please )?(?:from now on|going forward|from here on"
            rf"|in (?:the )?future)\b,?"
            r"(?! (?:i|i'm|we|he|she|they|it)\b)",
            rf"{_BEGIN}(?:please )?(?:every ?time|each time|whenever|any ?time"
            rf"|when) {_WHOEVER} ask\b",
            rf"\bwhen(?:ever)? {_WHOEVER} asks? (?:(?:you|me) )?(?:about|for|to|how|what"
            rf"|why|where)\b",
            r"\b(?:remember|be sure|make sure|you should|you must|i(?:'d| would)? (?:want|like|need"
            r"|prefer|expect) you) (?:to )?(?:always|never)\b",
            rf"{_BEGIN}(?:please )?don'?t (?:you )?ever {_TELLING}[a-z]{{2,}}\b"
            r"(?! (?:forget|quit|give up)\b)",
            rf"{_BEGIN}(?:bitte )?(?:ab (?:jetzt|sofort|heute)|von (?:jetzt|nun) an"
            rf"|künftig|in zukunft)\b"
            r"(?! (?:bin|habe|werde|will) ich\b)",
            rf"{_BEGIN}(?:bitte )?(?:immer|nie|niemals|stets) (?:[a-zäöüß]+ ){{0,6}}[a-zäöüß]+en\b"
            r"(?! (?:ich|wir)\b)",
            rf"{_BEGIN}(?:bitte )?[a-zäöüß]+e? (?:mir |uns )?(?:bitte )?(?:immer|stets"
            rf"|niemals)\b(?! ich\b)"
            r"(?=[^.!?\n]{1,80}\bwenn ich\b| (?:auf|mit|in|ohne|nur)\b)",
            rf"{_BEGIN}(?:à partir de maintenant|désormais|dorénavant)\b(?!,? (?:je|nous"
            rf"|il|elle|on)\b)",
            rf"{_BEGIN}(?:[a-zàâéèêîôûç]+(?:ez|ds|is|e)|ne [a-zàâéèêîôûç]+(?:ez|ds|is|e)) "
            r"(?:toujours|jamais)\b",
            rf"{_BEGIN}(?:de ahora en adelante|a partir de ahora"
            rf"|en adelante)\b(?!,? (?:yo|nosotros)\b)",
            rf"{_BEGIN}(?:por favor,? )?(?:siempre|nunca) [a-záéíóúñ]*(?:a|e|as|es|ame|eme)\b"
            r"(?= (?:el|la|los|las|un|una|en|con|mis?|tus?|al?)\b)",
            rf"{_BEGIN}(?:por favor,? )?[a-záéíóúñ]+[ae] (?:siempre|nunca) (?:en|con|sin"
            rf"|solo|sólo)\b",
            rf"{_BEGIN}(?:d'ora in (?:poi|avanti)|da ora in poi|a partire da adesso)\b",
            rf"{_BEGIN}(?:per favore,? )?[a-zàèéìòù]+[aei] sempre (?:in|con|senza|solo)\b",
            rf"{_BEGIN}(?:a partir de agora|de agora em diante|daqui em diante)\b",
            rf"{_BEGIN}(?:por favor,? )?[a-záâãéêíóôõúç]+[ae] sempre (?:em|com|sem|só)\b",
            rf"{_BEGIN}(?:vanaf nu|voortaan)\b(?! (?:ben|heb|ga|wil) ik\b)",
            rf"{_BEGIN}(?:altijd|nooit) (?:[a-zëï]+ ){{0,6}}[a-zëï]+en\b(?! (?:ik|we|wij)\b)",
            rf"{_BEGIN}(?:od teraz|odtąd|zawsze \w+j(?:cie)?\b|nigdy nie \w+j(?:cie)?\b)",
            rf"{_BEGIN}(?:отныне|с этого момента|впредь|всегда \w+(?:й|йте|и|ите)\b|никогда не "
            r"\w+(?:й|йте|и|ите)\b)",
            r"从现在(?:开始|起)|以后(?:请|都|每次)|今后(?:请|都)|(?:^|[，。！])请?(?:总是"
            r"|始终|永远不要|务必)"
            r"|每次我[^。]{0,8}(?:问|让)",
            r"これから(?:は|ずっと)|今後(?:は|とも)|(?:必ず|いつも"
            r"|常に)[^。]{1,30}(?:てください|て下さい|こと)",
            r"앞으로(?:는)?|지금부터(?:는)?|(?:항상|언제나|절대)[^.]{1,30}(?:주세요"
            r"|마세요|해줘|해 줘)",
        )
    ),
    re.IGNORECASE,
)
_PREFERENCE = re.compile(
    r"\b(?:i|we) (?:(?:always|usually|really|generally|still|would|much|personally"
    r"|actually|also|do) )*"
    r"prefer(?:red)?\b|\b(?:i|we)(?:'d|’d| would) (?:much )?rather\b|\b(?:my|our) preferences?\b"
    r"|\b(?:i|we) like [^.!?\n]{1,60} (?:better|more) than\b"
    r"|\b(?:ich|wir) (?:bevorzugen?|ziehen? [^.!?\n]{1,60} vor|möchten? lieber|hätten? lieber)\b"
    r"|\bam liebsten\b|\b(?:je|nous) préf[èé]r|\b(?:prefiero|preferimos|preferisco"
    r"|preferiamo|prefiro)\b"
    r"|\bik (?:heb|wil|geef) (?:het |er )?(?:liever|de voorkeur)\b|\bwolę\b"
    r"|\b(?:предпочита(?:ю|ем)|мне больше "
    r"нравится)\b|我们?(?:更|比较|还是)(?:喜欢|偏好|倾向|愿意)|のほうが(?:好き|いい|良い)"
    r"|の方が(?:好き|いい|良い)"
    r"|선호(?:해|합니다|하)|더 좋아(?:해|합니다)",
    re.IGNORECASE,
)
_LONGEST = 2_000
"""Characters of a text that are read: who says what to do from now on says it early."""
_HELP = re.compile(
    "|".join(
        (
            r"\bhow (?:(?:do|can|could|should|would|might|shall|am|are) (?:i|we|you|one)|to)\b",
            r"\b(?:can|could|would|will) you\b(?! (?:remember|recall)\b)",
            r"\bplease\b|\bhelp (?:me|us|with)\b|\b(?:walk|guide|talk) (?:me|us) through\b",
            r"\b(?:what|which|where|when|who)\b[^?.!]{0,40}\b(?:should|could|would|can"
            r"|shall) (?:i|we|you)\b",
            r"\b(?:do|would) you (?:think|suggest|recommend|advise)\b|\bis it (?:better"
            r"|best|ok|okay)\b",
            r"\bwhat(?:'s| is| are) (?:the|some|a) (?:best|good|common|typical|right"
            r"|different|easiest"
            r"|simplest|usual|recommended|other)\b",
            r"^\W*(?:explain|describe|write|draft|show|give|suggest|recommend|list|make"
            r"|create|build|plan"
            r"|summari[sz]e|translate|compare|fix|refactor|review|implement|design|teach"
            r"|tell me (?:how|about)"
            r"|calculate|compute|solve|prove|find|add|set up|generate|prepare|propose"
            r"|outline|rewrite)\b",
            r"\bi(?:'m| am) (?:trying|planning|looking|working|about|going) (?:to|on|for)\b",
            r"\bi (?:need|want|would like|'d like) (?:to|some|help|an?)\b",
            r"\bwie (?:kann|könnte|soll(?:te)?|würde|macht?|mache|geht)\b|\b(?:kannst"
            r"|könntest|würdest) du\b"
            r"|\bkönn(?:en|ten) sie\b|\bbitte\b|\bhilf mir\b|\b(?:erkläre?|schreibe?"
            r"|zeige?|gib) mir\b"
            r"|\bwelche[rsn]? .{0,30}\bsoll(?:te)? ich\b",
            r"\bcomment (?:puis|peut|dois|faire|devrais|pourrais)\b|\b(?:peux-tu"
            r"|pouvez-vous|pourrais-tu"
            r"|pourriez-vous)\b|\bs'il (?:te|vous) pla[iî]t\b|\baide[sz]?-moi\b",
            r"\bcómo (?:puedo|debo|podría|debería|hago|se)\b|\b(?:puedes|podrías|puede)\b"
            r"|\bpor favor\b"
            r"|\bayúdame\b",
            r"\bcome (?:posso|devo|potrei|dovrei|si|faccio)\b|\b(?:puoi|potresti|può)\b"
            r"|\bper favore\b"
            r"|\baiutami\b",
            r"\bcomo (?:posso|devo|poderia|deveria|faço|se)\b|\b(?:podes|podias|pode|poderia)\b"
            r"|\bajuda-?me\b|\bme ajud[ae]\b",
            r"\bhoe (?:kan|moet|zou|maak|doe)\b|\b(?:kun|kan|zou) je\b|\balsjeblieft\b|\bhelp me\b",
            r"\bjak (?:mogę|powinien|zrobić|powinnam)\b|\bczy możesz\b|\bproszę\b|\bpomóż\b",
            r"\bкак (?:мне|можно|лучше|сделать|я могу)\b|\b(?:можешь|можете|могли бы)\b"
            r"|\bпожалуйста\b"
            r"|\bпомоги(?:те)?\b",
            r"(?:怎么|如何|怎样)(?!样了)|请(?!假)|帮我|帮忙|能不能|可以.{0,10}吗|应该",
            r"どう(?:すれば|やって|したら)|教えて|ください|下さい|お願い|手伝って",
            r"어떻게|해\s?줘|주세요|도와|알려",
        )
    ),
    re.IGNORECASE,
)
_OF_THE_PAST = re.compile(
    r"\b(?:did|was|were|had) (?:i|we|my|our|the|it|that)\b|\b(?:have|has) (?:i|we|my"
    r"|our)\b|\bi['’]ve been\b"
    r"|\b(?:i|we) (?:said|told|mentioned|decided|agreed|discussed|talked|brought|asked|planned)\b"
    r"|\bremind me\b|\blast (?:time|week|month|year)\b|\bthroughout\b|\bover (?:the past|time)\b"
    r"|\bour (?:earlier |previous |past )?(?:conversation|chat|discussion|session)s?\b"
    r"|\b(?:habe ich|hatte ich|haben wir|hatten wir)\b|\b(?:ai-je|avons-nous|j'avais)\b"
    r"|\b(?:dije|dijimos|hice|hicimos)\b|之前|上次|以前|前に|この前|지난번",
    re.IGNORECASE,
)


def is_standing(text: str) -> bool:
    """Return True if a text asks for something from now on, in its first 2,000 characters:
    "Always …", "From now on …", "When I ask about …", in some dozen languages.

    "I always …" tells of somebody and asks for nothing.
    """
    for line in text[:_LONGEST].splitlines():
        lowered = line.lower()
        for trigger in _TRIGGERS:
            if trigger in lowered:
                if _STANDING.search(line) is not None:
                    return True
                break
    return False


def states_preference(text: str) -> bool:
    """Return True if somebody says in a text, in its first 2,000 characters, what they would rather
    have; not what they merely like.
    """
    return _PREFERENCE.search(text[:_LONGEST]) is not None


def asks_for_help(query: str) -> bool:
    """Return True if a query asks for something to be done or advised, rather than for what was."""
    return _HELP.search(query) is not None and _OF_THE_PAST.search(query) is None


def in_turn(scores: Floats, flags: Flags) -> Floats:
    """Return 1 for the best of the flagged candidates, 1/2 for the second, 1/3 for the third, …;
    0 for the others. Equal scores by their order.
    """
    import numpy as np

    places = np.flatnonzero(flags)
    values = np.zeros(len(scores), dtype=np.float64)
    values[places[np.argsort(-scores[places], kind="stable")]] = 1 / np.arange(1, len(places) + 1)
    return values
