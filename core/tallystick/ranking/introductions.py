"""Introductions: what a text says of who its speaker is, and questions that ask who somebody is.

"As a nurse from Leeds I get little time for it" shares no word with "What do I do for a living?".
Such a thing is said once, in passing, in the midst of something else, and asked for again and
again.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from tallystick.ranking.sentences import sentence_spans

NAME, AGE, WORK, HOME = 1, 2, 4, 8
"""What one says of oneself: how one is called, how old one is, what one does for a living, and
where one lives or comes from.
"""
_LONGEST = 4_000
"""Characters of a text that are read."""

_NAMED = r"(?-i:[A-ZÀ-ÖØ-Þ][\w.-]+)"
_I_AM = r"\bi(?:['’]m| am)"
_HOW = (
    r"(?:(?:only|just|now|already|almost|nearly|about|currently|also|still|mostly|usually|actually"
    r"|originally|both|all|recently|turning|really|always|used to) ){0,2}"
)
_YEARS = (
    r"(?:\d{1,3}|(?:twen|thir|for|fif|six|seven|eigh|nine)ty(?:[- ](?:one|two|three|four|five|six"
    r"|seven|eight|nine))?|(?:thir|four|fif|six|seven|eigh|nine)teen|ten|eleven|twelve)"
)
_YEAR_OLD = rf"(?:\w+ ){{0,2}}{_YEARS}[- ]years?[- ]old"
_OF_SOMETHING = (
    r"[-\s]*(?:%|[.,:/]\d|percent|out of|of|(?:second|minute|min|hour|day|week|month|kilo|mile|met"
    r"|cent|gram|pound|dollar|euro|point|step|page|chapter|time|people|f[eo]et|inch|lesson|level"
    r"|class|km|kg|cm|lb|game|round|year)\w*(?![- ](?:old|of age))\b)"
)
"""What follows a number that is no age."""
_NO_TRADE = (
    r"(?:bit|little|lot|tad|touch|few|couple|big|huge|great|massive|fan|fast|slow|quick|good|bad"
    r"|terrible|total|complete|mess|wreck|fool|idiot|genius|believer|person|member|part|man|woman"
    r"|guy|girl|boy|result|matter|rule|number|light|heavy|picky|morning|night|lover|mix|visual"
    r"|sucker|failure|winner|loser|stranger|newbie|beginner|new|different|better|lucky|happy)"
)
"""What follows "I'm a" and is no trade."""
_TRADE = (
    r"(?:[a-z]*(?:ologist|ographer|ician|ist|eer|essor|woman|keeper|maker|worker|officer|driver"
    r"|operator|designer|writer|teacher|trainer|manager|director|engineer|developer|builder|cleaner"
    r"|farmer|dealer|planner|singer|dancer|painter|lawyer|banker|welder|plumber|tailor|doctor|tutor"
    r"|actor|author|editor|auditor|surveyor|inspector|conductor|contractor|translator|administrator"
    r"|instructor|counsell?or|producer)|nurse|chef|cook|clerk|pilot|judge|nanny|guard|coach|student"
    r"|intern|apprentice|trainee|architect|analyst|vet|freelancer|accountant|consultant|assistant"
    r"|librarian|baker|butcher|waiter|waitress|carpenter|gardener|midwife|priest|soldier|secretary"
    r"|pensioner|founder|mechanic|paramedic|therapist|model)"
)


class _Phrases(NamedTuple):
    """How one says in a language who one is."""

    first_person: str
    """Words, of which a text has one that speaks of its speaker: looked for first."""
    name: str
    age: str
    work: str
    home: str


_ENGLISH = _Phrases(
    "i my me we",
    "|".join(
        (
            r"\bmy (?:full |first |last |middle |nick)?name(?:['’]s| is)\b",
            rf"{_I_AM} called\b|\bcalls? me {_NAMED}",
            rf"{_I_AM} {_NAMED}(?: {_NAMED})?(?=[,.;!]| and\b| from\b| here\b|$)",
        )
    ),
    "|".join(
        (
            rf"(?:{_I_AM}|\bi(?:['’]ll| will) be) {_HOW}{_YEARS}\b(?!{_OF_SOMETHING})",
            rf"\bi (?:just )?turn(?:ed)? {_YEARS}\b(?!{_OF_SOMETHING})",
            rf"\b(?:as|being) an? {_YEAR_OLD}\b|{_I_AM} (?:{_NAMED},? ){{1,2}}an? {_YEAR_OLD}\b",
            rf"\bat (?:the age of )?{_YEARS},? i\b|\bmy age\b|\bi was born\b|\bmy birthday is\b",
        )
    ),
    "|".join(
        (
            rf"\bi {_HOW}work {_HOW}(?:as|at|for|in|part[- ]time|full[- ]time|from home|nights)\b",
            rf"{_I_AM} {_HOW}(?:working|employed) (?:as|at|by)\b"
            r"|\bi (?:started|began|trained|qualified) as an?\b",
            rf"{_I_AM} {_HOW}an? (?!{_NO_TRADE}\b)[a-z]|{_I_AM} (?:{_NAMED},? ){{1,2}}an? \w",
            rf"\b(?:as|being) an? (?:[\w-]+ ){{0,3}}{_TRADE},? (?:i|i['’]\w+|my|we)\b",
            rf"\b(?:as|being) an? {_YEAR_OLD} [a-z]+",
            r"\bmy (?:work|job|career|role|position|life) as an?\b"
            r"|\bmy (?:current |day )?(?:job|profession|occupation|employer)(?: is|['’]s)\b",
            rf"\bi {_HOW}(?:run|own|manage|founded) (?:an?|my|our)\b|\bi teach\b|\bfor a living\b",
            rf"{_I_AM} {_HOW}(?:self-employed|unemployed|retired|freelancing|between jobs)\b",
        )
    ),
    "|".join(
        (
            rf"{_I_AM} {_HOW}from\b(?! (?:now|then|here|the same)\b)",
            rf"\b(?:i|we)(?:['’]ve)? {_HOW}(?:live|lived|reside|grew up|settled|rent(?: an? \w+)?)"
            r"(?: (?:alone|together|right|out|with my \w+))? (?:in|at|near|outside|here)\b",
            rf"\b(?:i|we)(?:['’]ve)? {_HOW}(?:moved|relocated)(?: (?:back|out|over|here|away))?"
            rf" (?:to|from) {_NAMED}",
            rf"\b(?:i|we)(?:['’]m|['’]re| am| are) {_HOW}"
            rf"(?:(?:living|based|located|renting(?: an? \w+)?) (?:in|at|near|here)\b"
            rf"|(?:moving|relocating) to {_NAMED})",
            r"\bi was (?:born|raised)(?: and raised)? in\b"
            r"|\bmy (?:home ?town|home city|home country|address|nationality) is\b",
            r"\b(?:i|we) (?:have|own|bought|share) an? (?:\w+ )?(?:flat|apartment|house|place"
            r"|farm) (?:in|at|near)\b|\bmy (?:flat|apartment|house|home|place) (?:is )?in\b"
            r"|, where i live\b",
            rf"year[- ]old[^.!?]{{0,60}}? from {_NAMED}"
            rf"|{_I_AM} {_NAMED}[^.!?]{{0,60}}? (?:from|based in|living in) {_NAMED}",
        )
    ),
)
_OTHERS = (
    _Phrases(
        "ich mein meine meinem meinen meiner meines wir",
        r"\bich hei(?:ß|ss)e\b|\bmein name ist\b",
        r"\bich (?:bin|werde|wurde) (?:\w+ )?\d{1,3}(?= jahre|\s*[,.;!]| und\b| geworden|$)"
        r"|\bals \d{1,3}-jährige[rs]?\b",
        r"\b(?:ich|und) arbeite (?:\w+ ){0,3}(?:als|bei|beim|im|für|am)\b|\bvon beruf\b"
        r"|\bich (?:studiere|unterrichte)\b"
        r"|\bals (?-i:[A-ZÄÖÜ])\w+ (?:habe|bin|arbeite|muss|kann) ich\b"
        r"|\bich bin (?:(?:eine?|gelernte[r]?|jetzt) )?(?-i:[A-ZÄÖÜ])\w+(?:in|er|ist|or|eur|ant"
        r"|mann|frau)(?=[,.;!]| und\b| bei\b| in\b| im\b| am\b|$)",
        r"\b(?:ich|und) (?:wohne|lebe|komme|stamme) (?:\w+ ){0,4}(?:in|aus|bei)\b"
        r"|\bwir (?:wohnen|leben) (?:\w+ ){0,3}(?:in|bei)\b"
        r"|\bnach (?-i:[A-ZÄÖÜ])\w+ (?:um)?gezogen\b",
    ),
    _Phrases(
        "je j mon ma nous",
        r"\bje m['’]appelle\b|\bmon (?:pré)?nom est\b",
        r"\bj['’]ai (?:\w+ )?[\w-]+ ans\b",
        r"\bje travaille (?:\w+ ){0,2}(?:comme|chez|dans|pour|à|au)\b|\bde métier\b"
        r"|\bmon métier est\b"
        r"|\bje suis (?:une? )?[a-zàâéèêîôûç]+(?:ier|ière|eur|euse|trice|iste|ienne|tecte|ogue)\b",
        r"\bj['’]habite\b|\bnous habitons\b|\bje vis (?:à|en|au)\b|\bje viens d[eu'’]"
        r"|\bj['’]ai (?:déménagé|grandi) (?:à|en|au)\b",
    ),
    _Phrases(
        "yo mi me soy tengo vivo vivimos trabajo",
        r"\bme llamo\b|\bmi nombre es\b",
        r"\btengo (?:\w+ ){1,4}años\b",
        r"\btrabajo (?:\w+ ){0,2}(?:como|de|en|para)\b|\bmi (?:profesión|oficio) es\b"
        r"|\bsoy (?:una? )?[a-záéíóúñ]+(?:ero|era|or|ora|ista|ante|ente|tecto|tecta|ogo|oga|ico"
        r"|ica)\b",
        r"\bvivo (?:\w+ ){0,2}en\b|\bvivimos en\b|\bsoy de\b|\bvengo de\b|\bme mudé a\b"
        r"|\bnací en\b",
    ),
    _Phrases(
        "io mi mio mia sono vivo abito lavoro",
        r"\bmi chiamo\b|\bil mio nome è\b",
        r"\bho (?:\w+ )?\w+ anni\b",
        r"\blavoro (?:\w+ ){0,2}(?:come|per|da|presso|alla?)\b|\bdi professione\b"
        r"|\bsono (?:un['’]?a? )?[a-zàèéìòù]+(?:iere|iera|ore|trice|ista|etto|ogo)\b",
        r"\b(?:vivo|abito) (?:\w+ ){0,2}(?:a|in|vicino)\b|\bvengo da\b|\bsono cresciut[oa] a\b"
        r"|\bmi sono trasferit[oa]\b",
    ),
    _Phrases(
        "eu meu minha me sou moro tenho trabalho",
        r"\b(?:chamo-me|me chamo)\b|\bmeu nome é\b",
        r"\btenho (?:\w+ ){1,4}anos\b",
        r"\btrabalho (?:\w+ ){0,2}(?:como|de|em|na|no|para)\b|\bminha profissão é\b"
        r"|\bsou (?:uma? )?[a-záâãéêíóôõúç]+(?:eiro|eira|or|ora|ista|ante|ente|eto|ogo|oga)\b",
        r"\bmoro (?:\w+ ){0,2}(?:em|na|no)\b|\bsou d[eoa]\b|\bvenho d[eoa]\b|\bme mudei para\b"
        r"|\bmudei-me para\b",
    ),
    _Phrases(
        "ik mijn",
        r"\bik heet\b|\bmijn naam is\b",
        r"\bik ben (?:\w+ )?[\w-]+ jaar(?: oud)?\b",
        r"\bik werk (?:\w+ ){0,3}(?:als|bij|in|voor|op)\b|\bvan beroep\b"
        r"|\bik ben (?:een )?[a-z]+(?:er|aar|eur|ist|kundige)\b(?=[,.;!]| en\b| bij\b| in\b|$)",
        r"\bik (?:woon|kom|leef) (?:\w+ ){0,3}(?:in|uit|bij)\b|\bnaar \w+ verhuisd\b",
    ),
    _Phrases(
        "я мне меня мой моё мое моя мы живу работаю",
        r"\bменя зовут\b|\bмо[её] имя\b",
        r"\bмне (?:\w+ )?[\w-]+ (?:лет|года?)\b",
        r"\bработаю (?:\w+ ){0,2}(?:в|на|у)\b|\bя работаю\b|\bпо профессии\b"
        r"|\bя \w+(?:ист|тель|ник|ница|ёр|арь|олог)(?=[,.!;]| и\b| в\b| из\b|$)",
        r"\bживу (?:\w+ ){0,2}(?:в|на|под)\b|\bмы живём в\b|\bя (?:родом )?из\b"
        r"|\bя (?:\w+ ){0,2}переехала? в\b",
    ),
    _Phrases(
        "我 咱",
        r"我(?:的名字)?叫|我的?名字是",
        r"我(?:今年|已经|快|现在|才)*[\d一二三四五六七八九十]{1,4}岁",
        r"我(?:目前|现在|一直)?在[^，。？！]{1,16}(?:工作|上班|教书|当)|我的?(?:职业|工作)是"
        r"|我从事"
        r"|我(?:是|做|当)(?:一[名个位])?[^，。？！]{0,8}(?:师|员|工|医|警|官|商|经理|司机|护士"
        r"|教授|演员|作家|记者)",
        r"我们?(?:目前|现在|一直|家)?(?:住|生活)在|我来自|我是[^，。？！是]{1,8}人(?![员民])"
        r"|我们?(?:最近|刚)?搬[到去来]|我家在|我的?老家",
    ),
    _Phrases(
        "私 僕 俺",
        r"(?:私|僕|俺)の名前は|と申します|(?:私|僕|俺)は[^。、]{1,12}といいます",
        r"(?:私|僕|俺)は(?:今年)?(?:で)?[\d一二三四五六七八九十]{1,4}[歳才]",
        r"(?:私|僕|俺)は[^。？！]{0,16}[でに](?:働いて|勤めて|勤務)|(?:私|僕|俺)の(?:職業|仕事)は"
        r"|(?:私|僕|俺)は[^。、？！]{0,10}(?:師|員|生|家|者|官|士)(?:です|だ)",
        r"(?:私|僕|俺)(?:たち)?は[^。？！]{0,16}(?:に住|で暮ら|から来|出身|で育|に引っ越)",
    ),
    _Phrases(
        "저는 저희 나는 내 제",
        r"(?:제|내) 이름은",
        r"(?:저는|나는|제 나이는|내 나이는)[^.!?]{0,10}?(?:\d{1,3}|스무|(?:열|스물|서른|마흔|쉰"
        r"|예순|일흔)(?:한|두|세|네|다섯|여섯|일곱|여덟|아홉)?) ?[살세]",
        r"(?:저는|나는|제가|내가)[^.!?]{0,20}(?:에서 (?:일|근무)|으?로 (?:일|근무)|다니)"
        r"|(?:제|내) (?:직업|직장)은"
        r"|(?:저는|나는) [^.!?]{0,10}[사원생가자관](?:입니다|이에요|예요)",
        r"(?:저는|나는|제가|내가|우리는)[^.!?]{0,16}(?:에 살|에 거주|에서 (?:왔|살|태어|자랐)"
        r"|로 이사|출신)|(?:제|내) 고향은",
    ),
)
_WHO = r"(?:(?!\S+['’]s )\S+ ){1,2}?"
_WHOSE = r"(?:my|(?<!['’]s )\b\w+['’]s)"
_QUESTIONS = (
    _Phrases(
        "i my me myself",
        rf"\b{_WHOSE} (?:full |first |last |middle |sur|nick)?name\b|\bam i called\b",
        rf"\bhow old (?:am|is|are|was) \S+"
        rf"|\b{_WHOSE} (?:current )?(?:age|date of birth|birthday|year of birth)\b"
        rf"|\bwhen (?:was|am|is) {_WHO}born\b",
        r"\bfor a living\b|\b(?:profession|occupation|line of work)\b"
        rf"|\b(?:what|who|which)(?:['’]s| is| was) {_WHOSE} (?:current |day )?(?:job|career"
        rf"|employer|work|trade)\b|\bwhere (?:do|does|did|am|is) {_WHO}(?:work|working|employed)\b"
        rf"|\bwho (?:do|does|did) {_WHO}work for\b"
        rf"|\bwhat (?:do|does) {_WHO}do(?: for work)?\s*[?.]?$"
        rf"|\bwhat (?:kind of |sort of |type of )?(?:job|work) (?:do|does|did) {_WHO}(?:do|have)\b",
        rf"\bwhere (?:do|does|did) {_WHO}(?:live|grow up|come from|reside)\b"
        rf"|\bwhere (?:am|is|are) {_WHO}(?:living|from|based)\b"
        r"|\b(?:which|what) (?:city|town|village|country|state|place|region) (?:do|does|did|am|is)"
        rf" {_WHO}(?:live|living|from|based|come from|reside|grow up)\b"
        rf"|\bwhere (?:was|am|is) {_WHO}born\b"
        rf"|\b{_WHOSE} (?:home ?town|nationality|home (?:address|country|city))\b",
    ),
    _Phrases(
        "ich mein meine meinem meinen meiner meines mir mich",
        r"\bheiße ich\b|\bmein name\b",
        r"\bwie alt bin ich\b|\bmein alter\b|\bwann bin ich geboren\b|\bhabe ich geburtstag\b",
        r"\bvon beruf\b|\bmein(?:en)? (?:beruf|job|arbeitgeber)\b|\bwo(?:bei|für)? arbeite ich\b"
        r"|\bwas arbeite ich\b|\bverdiene ich mein geld\b",
        r"\b(?:wo|in welche[rm] \w+) (?:wohne|lebe) ich\b"
        r"|\b(?:woher|aus welche[rm] \w+) (?:komme|stamme) ich\b|\bmeine (?:heimatstadt|adresse)\b",
    ),
    _Phrases(
        "je j mon ma moi",
        r"\bje m['’]appelle\b|\bmon (?:pré)?nom\b",
        r"\bquel âge ai-je\b|\bquel est mon âge\b|\bmon anniversaire\b",
        r"\bmon (?:métier|travail|emploi|employeur)\b|\bma profession\b|\btravaillé?-je\b"
        r"|\bje (?:fais dans la vie|travaille)\b",
        r"\bhabité?-je\b|\bj['’]habite\b|\bje (?:vis|viens)\b|\bviens-je\b|\bma ville\b",
    ),
    _Phrases(
        "yo mi me soy vivo trabajo tengo",
        r"\bme llamo\b|\bmi (?:nombre|apellido)\b",
        r"\baños tengo\b|\bmi (?:edad|cumpleaños)\b",
        r"\bme dedico\b|\bmi (?:profesión|trabajo|oficio|empleo)\b|\bdónde trabajo\b",
        r"\bd[óo]nde (?:vivo|soy)\b|\bciudad vivo\b|\bmi (?:ciudad|país|dirección)\b",
    ),
    _Phrases(
        "io mi mio mia sono vivo abito lavoro",
        r"\bmi chiamo\b|\bil mio (?:nome|cognome)\b",
        r"\banni ho\b|\bla mia età\b|\bil mio compleanno\b",
        r"\b(?:il mio|che) (?:lavoro|mestiere)\b|\bla mia professione\b|\bdove lavoro\b",
        r"\bdove (?:vivo|abito)\b|\bcittà (?:vivo|abito)\b|\bda dove vengo\b|\bdi dove sono\b",
    ),
    _Phrases(
        "eu meu minha me sou moro tenho trabalho",
        r"\bme chamo\b|\bmeu (?:nome|sobrenome|apelido)\b",
        r"\banos (?:eu )?tenho\b|\bminha idade\b|\bmeu aniversário\b",
        r"\bminha profissão\b|\bmeu (?:trabalho|emprego)\b|\bonde (?:eu )?trabalho\b",
        r"\b(?:onde|cidade) (?:eu )?moro\b|\bonde (?:eu )?sou\b|\bminha cidade\b",
    ),
    _Phrases(
        "ik mijn",
        r"\bheet ik\b|\bmijn naam\b",
        r"\boud ben ik\b|\bmijn (?:leeftijd|verjaardag)\b",
        r"\bmijn (?:beroep|baan|werk)\b|\bwerk ik\b|\bdoe ik voor werk\b",
        r"\b(?:woon|kom) ik\b|\bmijn (?:woonplaats|adres)\b",
    ),
    _Phrases(
        "я меня мне мой моя моё мое",
        r"\bменя зовут\b|\bмо[её] имя\b|\bмоя фамилия\b",
        r"\bмне лет\b|\bмой (?:возраст|день рождения)\b",
        r"\bкем я работаю\b|\bгде я работаю\b|\bмоя (?:профессия|работа)\b",
        r"\bя живу\b|\bоткуда я\b|\bмой (?:город|адрес)\b",
    ),
    _Phrases(
        "我",
        r"我叫什么|我的?(?:名字|姓名)",
        r"我(?:今年)?(?:几岁|多大|多少岁)|我的?(?:年龄|生日)",
        r"我的?(?:职业|工作|职位)|我是做什么|我在哪.{0,3}(?:工作|上班)",
        r"我(?:现在)?(?:住|来自).{0,3}哪|我是哪里人|我的?(?:老家|家乡|地址)",
    ),
    _Phrases(
        "私 僕 俺",
        r"(?:私|僕|俺)の名前",
        r"(?:私|僕|俺)は?(?:今)?(?:何歳|いくつ)|(?:私|僕|俺)の(?:年齢|誕生日)",
        r"(?:私|僕|俺)の(?:職業|仕事)|(?:私|僕|俺)はどこで働",
        r"(?:私|僕|俺)は(?:今)?どこ(?:に住|から|の出身)|(?:私|僕|俺)の(?:出身|住所|故郷)",
    ),
    _Phrases(
        "나 내 저 제",
        r"(?:내|제) 이름",
        r"(?:내|제) (?:나이|생일)|(?:나는|저는|내가|제가) 몇 살",
        r"(?:내|제) (?:직업|직장)|(?:내가|제가|나는|저는) (?:무슨 일|어디서 일|어디에서 일)",
        r"(?:내가|제가|나는|저는) (?:지금 )?(?:어디에? 살|어디 출신|어느 도시)"
        r"|(?:내|제) (?:고향|주소)",
    ),
)
_WHO_I_AM = (
    r"\bwho (?:am i|i am)\b"
    r"|\b(?:know|remember|tell me|told you|said) (?:\w+ )?about (?:me|myself)\b|\bdescribe me\b"
    r"|\bwer bin ich\b|\büber mich\b|\bqui suis-je\b|\bde moi\b|\bqui[ée]n soy\b|\bde mí\b"
    r"|\bchi sono\b|\bdi me\b|\bquem sou\b|\bsobre mim\b|\bwie ben ik\b|\bover mij\b|\bкто я\b"
    r"|\bобо мне\b|我是谁|关于我|(?:私|僕|俺)は誰|(?:私|僕|俺)について|(?:나는|내가) 누구"
    r"|나에 대해"
)
_ADVICE = re.compile(
    r"\b(?:should|could|can|shall|would|might|better|best|improve|apply|change|quit|write|prepare"
    r"|plan|draft|explain|make|create|find|get)\b(?! (?:you |me )?(?:tell|remember|recall|remind"
    r"|say)\b)",
    re.IGNORECASE,
)
"""What a question has that asks for advice about a job or a home, rather than which one it is."""


class _Read(NamedTuple):
    """The phrases of a language, ready to be looked for."""

    first_person: frozenset[str]
    is_spaced: bool
    """True where words stand between spaces; elsewhere they are looked for anywhere."""
    kinds: dict[int, re.Pattern[str]]

    @classmethod
    def of(cls, phrases: _Phrases) -> _Read:
        first_person, *kinds = phrases
        patterns = [re.compile(pattern, re.IGNORECASE) for pattern in kinds]
        return cls(
            frozenset(first_person.split()),
            _UNSPACED.search(first_person) is None,
            dict(zip((NAME, AGE, WORK, HOME), patterns, strict=True)),
        )

    def is_of_speaker(self, text: str, words: frozenset[str]) -> bool:
        """Return True if a text, with its words in small letters, speaks of its speaker."""
        if self.is_spaced:
            return not self.first_person.isdisjoint(words)
        return not text.isascii() and any(word in text for word in self.first_person)

    def found(self, text: str) -> dict[int, int]:
        """Return where in a text the first phrase of a kind begins, by the kind."""
        found = {kind: pattern.search(text) for kind, pattern in self.kinds.items()}
        return {kind: match.start() for kind, match in found.items() if match is not None}


_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_WORDS = re.compile(r"[^\W\d_]+")
_SENTENCE = re.compile(r"(?:[^.!?\n。！？]|\.(?=\w))+")


@cache
def _says() -> tuple[_Read, ...]:
    # Compiled with the first text, and not with the import: it takes a while.
    return tuple(map(_Read.of, (_ENGLISH, *_OTHERS)))


@cache
def _asks() -> tuple[_Read, ...]:
    return tuple(map(_Read.of, _QUESTIONS))


def introduction(text: str) -> int:
    """Return what a text says of who its speaker is, in its first 4,000 characters: NAME, AGE, WORK
    and HOME, added up; 0 for nothing. In English and ten other languages.
    """
    return sum(_found(text[:_LONGEST], _says()))


def introduction_passage(text: str) -> tuple[int, int] | None:
    """Return the characters from and up to which the sentence goes in which a text first says who
    its speaker is; None where none does.
    """
    found = _found(text[:_LONGEST], _says())
    if not found:
        return None
    spans = [span for span in sentence_spans(text) if span[0] <= min(found.values())]
    return spans[-1] if spans else None


def asked_of_oneself(query: str) -> int:
    """Return what a query asks of who the asker is, NAME, AGE, WORK and HOME, added up; 0 where it
    asks for something else, or for advice.
    """
    if _ADVICE.search(query):
        return 0
    if re.search(_WHO_I_AM, query, re.IGNORECASE):
        return NAME | AGE | WORK | HOME
    return sum(_found(query, _asks()))


def asked_of_speaker(query: str) -> int:
    """Return what a query asks of who the speaker is that it names, in the same way; in English."""
    english = _asks()[0]
    return 0 if _ADVICE.search(query) else sum(english.found(query))


def _found(text: str, languages: tuple[_Read, ...]) -> dict[int, int]:
    """Return where in a text the first phrase of a kind begins, by the kind: in the sentences that
    speak of their speaker, in the languages in which they do.
    """
    words = _words_of(text)
    spoken = [language for language in languages if language.is_of_speaker(text, words)]
    found: dict[int, int] = {}
    for sentence in _SENTENCE.finditer(text) if spoken else ():
        said = sentence[0]
        words = _words_of(said)
        for language in spoken:
            if language.is_of_speaker(said, words):
                for kind, place in language.found(said).items():
                    found.setdefault(kind, sentence.start() + place)
    return found


def _words_of(text: str) -> frozenset[str]:
    return frozenset(_WORDS.findall(text.lower()))
