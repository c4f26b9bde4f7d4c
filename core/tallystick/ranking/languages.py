"""Languages: the words that carry grammar or time in each, which language a question is asked in,
the roots of its words, and whether a text asks or tells of a time.

Text is indexed without knowing its language: a term is a word without accents, stemmed as English.
A question in another language asks for every term that has its words' roots in that language; see
`Vocabulary.related`.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tallystick.ranking.fences import prose_parts
from tallystick.ranking.introductions import introduction
from tallystick.ranking.standing import is_standing, states_preference

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from Stemmer import Stemmer  # type: ignore[import-not-found,unused-ignore]

ENGLISH = "english"

_GRAMMAR = {
    ENGLISH: """
    a about above after again all also am among an and any are arent as at be because
    been before being below between both but by can cant cannot could couldnt did
    didnt do does doesnt doing dont done down during each either else ever every few
    for from further get gets getting got had hadnt has hasnt have havent having he
    her here hers herself him himself his how i if im in into is isnt it its itself
    just let lets many me might mine more most much must my myself neither no nor not
    now of off on once one only onto or other others ought our ours ourselves out
    over own please said same say says shall she should shouldnt since so some such
    tell than that the their theirs them themselves then there these they this those
    though through to too under until up upon very was wasnt we were werent what when
    where whether which while who whom whose why will with within without wont would
    wouldnt yes yet you your yours yourself yourselves""",
    "german": """
    aber alle allem allen aller alles als also am an andere anderen auch auf aus bei
    beim bin bis bist da damals damit dann das dass daß dein deine dem den denn der
    des dessen deshalb dich die dies diese diesem diesen dieser dieses dir doch dort
    du durch ein eine einem einen einer eines er es etwas euch euer für gab gegen
    gibt habe haben hab hast hat hatte hatten hätte hier hin hinter ich ihm ihn ihnen
    ihr ihre ihrem ihren ihrer im in indem ins ist jede jeden jeder jedes jetzt kann
    kannst kein keine keinen können konnte machen mal man mehr mein meine meinem
    meinen meiner mich mir mit muss musste nach nicht nichts noch nun nur ob oder
    ohne schon sehr sein seine seinem seinen seiner seit sich sie sind so soll sollte
    sondern sonst über um und uns unser unsere unter viel viele vom von vor war waren
    warum was weil welche welchem welchen welcher welches wem wen wenn wer werde
    werden wessen wie wieder wieso will wir wird wirst wo woher wohin wollen wollte
    worden wurde wurden zu zum zur zwischen""",
    "french": """
    ai aie ainsi alors as au aucun aussi autre autres aux avait avant avec avez avoir
    avons car ce ceci cela celle celui ces cet cette ceux chaque chez ci comme
    comment d dans de depuis des donc dont du elle elles en encore entre es est et
    étaient était été être eu eux fait font faire fut il ils j je l la laquelle le
    lequel les leur leurs lors lui m ma mais me même mes moi moins mon n ne ni nos
    notre nous on ont ou où par parce pas pendant peu peut plus pour pourquoi qu
    quand que quel quelle quelles quels qui quoi s sa sans se sera ses si son sont
    sous sur t ta te tes toi ton tous tout toute toutes très tu un une vers vos votre
    vous y""",
    "spanish": """
    a al algo algunas algunos ante antes aquel aquella así aunque cada como cómo con
    contra cual cuál cuales cuáles cuando cuándo cuánto de del desde donde dónde dos
    durante e el él ella ellas ellos en entre era eran eres es esa esas ese eso esos
    esta está están estaba estar estas este esto estos fue fueron ha había habían han
    hasta hay he la las le les lo los más me mi mí mis mucho muy nada ni no nos
    nosotros nuestra nuestro o os otra otras otro otros para pero por porque qué que
    quien quién quienes se sea ser si sí sido sin sobre son su sus también tan tanto
    te tenía tiene tienen tengo todo todos tu tú tus un una unas uno unos vosotros y
    ya yo""",
    "italian": """
    a abbiamo agli ai al alla alle allo anche avere aveva avevo c che chi ci ciò co
    col come con contro cosa cui da dagli dai dal dalla dalle dallo degli dei del
    dell della delle dello di dopo dove due e è ed era erano essere fa fare fra gli
    ha hai hanno ho i il in io l la le lei li lo loro lui ma me mi mia mie miei mio
    molto ne nei nel nella nelle nello no noi non nostra nostro o ogni per perché più
    poi può qual quale quali quando quanto quella quelle quelli quello questa queste
    questi questo qui se sei si sia siamo sono sta stata stato su sua sue sugli sui
    sul sulla suo suoi ti tra tu tua tue tuo tutti tutto un una uno vi voi""",
    "portuguese": """
    a à ao aos aquela aquele aquilo as às até com como da das de dela dele deles
    depois do dos e é ela elas ele eles em entre era eram essa esse esta está estão
    estava este eu foi foram há isso isto já lhe lhes mais mas me mesmo meu meus
    minha minhas muito na não nas nem no nos nós nossa nosso num numa o onde os ou
    para pela pelas pelo pelos por porque porquê qual quais quando quanto que quê
    quem se sem ser seu seus só sobre sua suas também te tem tém têm tenho ter tinha
    toda todo todos tu tua um uma você vocês vos""",
    "dutch": """
    aan al alle alles als altijd andere ben bij daar dan dat de der deze die dit doch
    doen door dus een en er ge geen had hadden heb hebben heeft hem het hier hij hoe
    hun iets ik in is ja je jij jou jouw kan kon kunnen maar me meer men met mij mijn
    moet na naar niet niets nog nu of om omdat onder ons onze ook op over reeds te
    tegen toch toen tot u uit uw van veel voor waar waarom wanneer want waren was wat
    we wel welk welke werd wezen wie wij wil worden wordt zal ze zei zich zij zijn zo
    zonder zou""",
    "swedish": """
    alla allt att av blev bli blir de dem den denna deras dess det detta dig din dina
    ditt du där då efter ej eller en er era ert ett från för ha hade han hans har
    henne hennes hon honom hos hur här i icke ingen inom inte jag kan kunde man med
    mellan men mig min mina mitt mot mycket när någon något några och om oss på samma
    sedan sig sin sina sitt ska skulle som så till under upp ut utan vad var vara
    varför varit varje vem vi vid vilka vilken vilket vår våra""",
    "norwegian": """
    alle at av bare ble bli blir både da de deg dem den denne der deres det dette di
    din ditt du dykk eg ein eit eller en er et etter for fordi fra fram få før ha
    hadde han hans har hennes her hos hun hva hvem hvilke hvilken hvis hvor hvordan
    hvorfor i ikke ingen inn jeg kan kunne man mange med meg mellom men mer min mitt
    mot mye måtte ned noe noen nå når og også om opp oss over på samme seg selv si
    siden sin sine sitt skal skulle slik som så til under ut uten var ved vi vil
    ville vår være vært""",
    "danish": """
    af alle alt at blev blive bliver da de dem den denne der deres det dette dig din
    disse dog du efter eller en end er et for fordi fra får før ham han hans har have
    havde hende hendes her hos hun hvad hvem hver hvilke hvilken hvis hvor hvordan
    hvorfor hvornår i ikke ind ingen jeg jer jo kan kunne man mange med meget men mig
    min mine mit mod når nogen noget nogle nu og også om op os over på selv sig sin
    sine sit skal skulle som så til ud under vi vil ville vor være været""",
    "finnish": """
    ei eivät emme en et että ette hän hänen he heidän hän häntä ja jo joka jos jossa
    jotka kaikki kanssa keitä ketkä kuin kuinka kuka ketä kun me meidän mihin mikä
    miksi millainen milloin minä minun minua missä mistä mitä mitkä mukaan mutta myös
    ne niiden niin nyt ole olen olet oli olivat olla olleet ollut on ovat se sen
    siinä sillä sinä sinun sitä tai tämä tämän te tuo vaan vai vain vaikka""",
    "hungarian": """
    a abban ahhoz ahogy ahol aki akik akkor alatt által általában amely ami amíg az
    azok azon azt azután be belül benne csak de e egy egyik ehhez el és ez ezek ezt
    fel hanem hogy hogyan hol honnan hova igen így ill illetve ilyen is ki kik kit
    közben között le lehet lenne lett ma már még meg mely melyik mert mi miért mikor
    mint mit mivel nagyon ne nem nincs olyan ott ő ők sem sok szerint tehát tud
    utolsó után vagy van vannak vele viszont volt voltak""",
    "romanian": """
    a acea aceasta această aceste acest acesta acolo ai al ale am are aș asta atunci
    au avea avut că căci când care ce cea cel cele cei cine cât către cu cum da dar
    de deci deja deși din după ea ei el ele era erau este eu fără fi fiecare fost i
    iar îi îl în înainte între la le lor lui mai mea mei meu mi nici nimic noi
    noastră nostru nu o ori pe pentru până prin sa să sale sau se și sunt suntem ta
    te toate tot toți tu un una unde unei unui unor va vă voi vom vor""",
    "turkish": """
    acaba ama ancak bana bazı belki ben bende benden beni benim bile bir biraz biri
    biz bize bizim bu bunu bunun burada çok çünkü da daha de değil diye dolayı en
    eğer gibi hangi hem hep hepsi her hiç için ile ise kadar ki kim kime kimin mı mi
    mu mü nasıl ne neden nerede nereye niçin niye o olan olarak oldu olduğu olsa on
    ona onda ondan onlar onu onun oysa sen sana seni senin siz size sizin sonra şey
    şu tüm var ve veya ya yani yok zaman""",
    "polish": """
    a aby ale bardzo bez bo być był była było były bym chce choć ci co coś czy dla
    dlaczego do gdy gdzie go i ich ile im innych ja jak jaka jaki jakie jako je jego
    jej jest jestem jeszcze już każdy kiedy kim która które którego której który
    którzy którą kto ma mam mi mieć mną mnie moja mój może my na nad nam nas nasz nie
    nic nich nim niż o od on ona one oni oraz po pod przed przez przy są się skąd
    swoje ta tak także tam te tego tej ten też to tu twoja twój ty tych tylko tym u w
    we wszystko z za ze że""",
    "czech": """
    a aby ale ani až být bude budou by byl byla byli bylo co což či do ho i já jak
    jaká jaké jaký je jeho její jejich jemu jen jestli ještě ji jsem jsi jsme jsou
    jste k kam kde kdo kdy když ke která které kteří který má mám máš mě mezi mi mně
    mnou moje můj mu může my na nad nám nás naše ne nebo nebyl není než nic o od on
    ona oni pak po pod podle pro proč proto protože první před přes při s se si sice
    svůj ta tak také takže tam tě ten tedy to toho tohle tom tomu tu tvůj ty u už v
    vám vás ve však všechno vy z za ze že""",
    "indonesian": """
    ada adalah agar akan aku anda antara apa apakah atas atau bagaimana bagi bahwa
    belum berapa bila bisa bukan dalam dan dapat dari dengan di dia harus hanya ia
    ini itu jika juga kalau kami kamu kapan karena ke kepada kita lagi lebih maka
    mana mereka mengapa namun nya oleh pada para pernah saat saja saya sebagai
    sebelum sedang sejak selama seperti serta siapa sudah supaya tanpa telah tentang
    tetapi tidak untuk yang""",
    "catalan": """
    a abans al als alguna amb aquell aquella aquest aquesta això de del dels des
    després dins el ella elles ells els em en ens entre era eren es és està estan
    fins ha han havia he hi ho i jo l la les li m me meu meva més molt na ni no
    nosaltres o on per però perquè qual quan que què qui s se seu seva si són sobre
    també te té tot tots tu un una uns vosaltres va van""",
    "russian": """
    а без более бы был была были было быть в вам вас весь во вот все всего всех вы
    где говорил да даже для до его ее её если есть еще ещё ж же за зачем здесь и из
    или им их к как какая какие какой какую кем когда кого кому которая которые
    который кто куда ли либо мне много мной может мои мой моя мы на над надо нам нас
    наш не него нее неё ней нет ни них но ну о об однако он она они оно от откуда
    очень по под почему при про раз с сам свое свои своя себе себя со так также такой
    там тебе тебя тем теперь то тобой тогда того тоже той только том ты у уже хотя
    чего чей чем через что чтобы чья эта эти это этого этой этом этот я""",
    "greek": """
    αλλά αν αντί από αυτά αυτές αυτή αυτήν αυτό αυτοί αυτός αυτού για γιατί δε δεν
    εγώ εδώ εκεί εκείνη εκείνο είμαι είναι είσαι είχα είχε εμείς ένα έναν ένας εσείς
    εσύ έτσι έχει έχουν έχω η ή ήταν θα ίσως κάθε και κάποιος κατά κι λοιπόν μα με
    μέχρι μη μην μια μία μου μόνο να ναι ο οι όπως όπου όταν ότι ού όχι πάνω παρά
    ποια ποιες ποιο ποιοι ποιος ποιον πολύ που πού πώς πριν προς σαν σας σε στα στη
    στην στις στο στον στους τα τι τις της την τη το τον του τους των πότε""",
    "arabic": """
    إذا إذ إلى أن أنا أنت أنتم أو أي أين إن إنه أنه التي الذي الذين اللذان بعد بعض بل
    بين تلك ثم حتى حيث خلال ذلك سوف على عليه عن عند عندما غير في فيه فيها قبل قد كان
    كانت كل كم كما كيف لا لأن لقد لكن لم لماذا لن له لها ليس ما ماذا مع من منذ منه
    متى نحن هذا هذه هل هم هنا هناك هو هي و يكون""",
}
"""Words that carry grammar rather than meaning, by the name that Snowball gives the language."""

_SCRIPTS = (
    (0x370, 0x3FF, "greek"),
    (0x1F00, 0x1FFF, "greek"),
    (0x400, 0x52F, "russian"),
    (0x600, 0x6FF, "arabic"),
)
"""Letters that one of these languages alone is written in, or others that its stemmer serves as
well as none.
"""
_LETTERS = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ð": "d", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th", "ß": "ss"}
)
"""Latin letters that no decomposition turns into plain ones."""
_LEAST = 3
"""The number of distinctive words of a language from which on a scope counts as written in it."""

_local = threading.local()


@cache
def stop_words(language: str) -> frozenset[str]:
    """The words of grammar of a language, without case, with and without accents."""
    plain = {
        unicodedata.normalize("NFKC", word.casefold())
        for word in _GRAMMAR.get(language, "").split()
    }
    return frozenset(plain | {folded(word) for word in plain})


def languages_of(words: Iterable[str]) -> tuple[str, ...]:
    """Return the languages of which a text contains the most words of grammar; several if they
    share them, none without any.

    English comes alone, and where it has as many as another it wins: so an English question is
    asked as one.
    """
    distinct = set(words)
    grammar = {language: distinct & stop_words(language) for language in _GRAMMAR}
    # Words such as "die" and "da" alone make no German.
    hits = {
        language: len(hit) for language, hit in grammar.items() if any(map(_is_distinctive, hit))
    }
    most = max(hits.values(), default=0)
    if len(grammar[ENGLISH]) >= most:
        return (ENGLISH,) if grammar[ENGLISH] else ()
    return tuple(sorted(language for language, count in hits.items() if count == most))


def languages_spoken(holds: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the languages, English aside, of which a scope contains enough distinctive words: at
    least half as many as of any other.
    """
    counts = {language: sum(map(holds, words)) for language, words in _distinctive_words().items()}
    most = max(counts.values())
    return tuple(
        sorted(
            language_name
            for language_name, count in counts.items()
            if count >= max(_LEAST, most / 2)
        )
    )


@cache
def _distinctive_words() -> dict[str, tuple[str, ...]]:
    """Return, for each language but English, the words of grammar that distinguish it from most
    others.
    """
    shared: dict[str, int] = {}
    for language in _GRAMMAR:
        for word in stop_words(language):
            shared[word] = shared.get(word, 0) + 1
    return {
        language: tuple(
            sorted(
                word for word in stop_words(language) if shared[word] <= 2 and _is_distinctive(word)
            )
        )
        for language in _GRAMMAR
        if language != ENGLISH
    }


def _is_distinctive(word: str) -> bool:
    """Return True if a word of grammar is hardly ever an English word, a name or an initial."""
    return (
        (len(word) > 2 or not word.isascii())
        and word not in stop_words(ENGLISH)
        and word not in _ENGLISH_TOO
    )


_NAMES = """
    ach all alla alles also alt ante avant bade ben bile bin bring cada chance chez
    coin come dame dare data dem den denote der die dies dir doing don dont dos due
    durch else end era est fare final fine font gab gift gut hade han has hast hat
    hem her hey him hint hit hun ili ist jag jar kan ken kind kit las les list los
    lot made main man mania mars mat men mere met mine mit moi mot net nun once one
    onto opera ours pan par pas past pee per plan plus pod pole poor pour pro qua ray
    real sale san sang sauce sea see sense ser sera side sin site sits soil soll son
    sort sous star sub sum sun sur tale tan tans tel tell ten tent toe ton top tot
    tout tub turn van var vat via vide vim war was wear wen wet who wie will win wit
    wont
"""
"""English words, and foreign ones in English names, which say nothing of another language."""
_ENGLISH_TOO = frozenset(_NAMES.split())


_ASKING = re.compile(
    "为什么|為什麼|什么时候|什麼時候|什么|什麼|怎么样|怎麼樣|怎么|怎麼|怎样|怎樣|哪里|哪裡|哪儿|哪個|哪个|哪些|哪位|多少|何时|何時"
    "|是不是|有没有|有沒有|是否|吗|嗎|呢"
    "|いつ|どこ|だれ|誰|なぜ|どうして|どうやって|どのように|どの|どれ|どんな|どちら|いくつ|いくら|何(?=[がをでにはのか時月日年曜人])"
    "|(?:です|ます|でした|ました|ません|でしょう)か"
    "|언제|어디(?:서|에서|에|로)?|누가|누구(?:를|와|에게)?|무엇(?:을|이)?|무슨|어떻게|어떤|왜|얼마나|몇|(?:나요|까요|습니까|입니까|인가요)"
)
"""Question words of Chinese, Japanese and Korean, as far as no other word is written so."""


def without_asking(text: str) -> str:
    """Return a question in a script without spaces with its question words replaced by spaces,
    unless nothing else is left.
    """
    if text.isascii():
        return text
    rest = _ASKING.sub(" ", text)
    return rest if any(char.isalnum() for char in rest) else text


def script_of(word: str) -> str | None:
    """Return the language whose stemmer serves the script of a word; None for Latin letters and for
    all others.
    """
    code = ord(word[0])
    return next((language for first, last, language in _SCRIPTS if first <= code <= last), None)


def is_latin(word: str) -> bool:
    """Return True if a word is written in Latin letters, which many languages share."""
    return word[0] < "\u0250"


def folded(word: str) -> str:
    """Return a word without the accents of Latin letters, which people often leave out."""
    if word.isascii() or script_of(word) is not None:
        return word
    form = unicodedata.normalize("NFD", word.translate(_LETTERS))
    return unicodedata.normalize(
        "NFC", "".join(char for char in form if unicodedata.category(char) != "Mn")
    )


def stemmed(word: str) -> str:
    """The term of a word, whatever its language: by its script, and of Latin letters as English
    without accents.
    """
    if word.isascii():
        return _stem(word, ENGLISH) if word.isalpha() else word
    language = script_of(word)
    if language is not None:
        return _stem(word.replace("ё", "е"), language) if word.isalpha() else word
    plain = folded(word)
    return _stem(plain, ENGLISH) if plain.isascii() and plain.isalpha() else plain or word


def roots(words: Sequence[str], language: str) -> list[str]:
    """The root of each word in a language, without accents."""
    return [folded(_stem(word, language)) for word in words]


def _stem(word: str, language: str) -> str:
    stemmer = _stemmer(language)
    return word if stemmer is None else cast(str, stemmer.stemWord(word)) or word


def _stemmer(language: str) -> Stemmer | None:
    # A stemmer keeps state while it works, so each thread has its own.
    stemmers: dict[str, Any] | None = getattr(_local, "stemmers", None)
    if stemmers is None:
        stemmers = _local.stemmers = {}
    if language not in stemmers:
        from Stemmer import Stemmer, algorithms

        # Older releases lack some languages, whose words then stand as they are.
        stemmers[language] = Stemmer(language) if language in algorithms() else None
    return stemmers[language]


ASKS, TELLS_TIME, STANDING, PREFERS = 1, 2, 4, 8
"""Flags of a memory: it ends with a question; it contains a word of time; it asks for something
from now on; it states a preference. The next four are of who stores them.
"""
_ASKS_FROM, _CODE_FROM, _PERCENT = 8, 16, 0x7F
"""The first bits of two percentages, and the bits that one has."""
_WHO_FROM, _KINDS = 24, 0xF
"""The first bit of what an introduction says, and the bits of all its kinds."""
INTRODUCES = _KINDS << _WHO_FROM
"""The flags of a memory in which somebody says who they are, of any kind."""
_TIME = """
    today tonight yesterday tomorrow morning afternoon evening night noon midnight
    monday tuesday wednesday thursday friday saturday sunday weekend january february
    march april june july august september october november december spring summer
    autumn winter day days week weeks month months year years ago last next recently
    lately soon since earlier later date birthday anniversary christmas easter
    thanksgiving am pm heute gestern vorgestern morgen abend nachts montag dienstag
    mittwoch donnerstag freitag samstag sonnabend sonntag wochenende januar februar
    märz juni juli oktober dezember frühling herbst tage tagen woche wochen monat
    monate monaten jahr jahre jahren uhr geburtstag weihnachten ostern aujourd hui
    hier demain soir lundi mardi mercredi jeudi vendredi samedi dimanche janvier
    février avril juin juillet août septembre octobre novembre décembre printemps été
    automne hiver jour jours semaine semaines mois année années anniversaire noël hoy
    ayer anteayer mañana noche lunes martes miércoles jueves viernes sábado domingo
    enero febrero marzo abril junio julio agosto septiembre octubre noviembre
    diciembre primavera verano otoño invierno día días semana semanas meses año años
    cumpleaños navidad oggi ieri domani sera lunedì martedì mercoledì giovedì venerdì
    sabato domenica gennaio febbraio aprile maggio giugno luglio settembre ottobre
    dicembre autunno inverno giorno giorni settimana settimane mese mesi anno anni
    compleanno natale hoje ontem amanhã segunda terça quarta quinta sexta janeiro
    fevereiro março maio junho julho setembro outubro novembro dezembro verão outono
    dia dias mês anos aniversário vandaag gisteren maandag dinsdag woensdag donderdag
    vrijdag zaterdag zondag januari februari maart augustus oktober lente zomer
    herfst dag dagen weken maand maanden jaar verjaardag kerst dzisiaj dziś wczoraj
    jutro poniedziałek wtorek środa środę czwartek piątek sobota sobotę niedziela
    niedzielę tydzień miesiąc roku urodziny сегодня вчера завтра утром вечером ночью
    понедельник вторник среда среду четверг пятница пятницу суббота субботу
    воскресенье январь января февраль февраля март марта апрель апреля май мая июнь
    июня июль июля август августа сентябрь сентября октябрь октября ноябрь ноября
    декабрь декабря весной летом осенью зимой день дня неделя неделю недели месяц
    месяца месяцев год года лет году
"""
"""Words of time, of other languages those that are no English words."""
_TIME_WORDS = frozenset(_TIME.split())
_WORD = re.compile(r"[a-z']+")
_ANY_WORD = re.compile(r"[^\W\d_]+")
_UNSPACED_TIME = re.compile(
    r"[昨今明前去]天|[今明昨去]年|\d\s*[年月日号]|[年月周週日]前|先週|来週|先月|来月|昨日|今日|明日|[上下]周|어제|오늘|내일|지난|작년|\d\s*[월일년]"
)
_YEAR_OR_HOUR = re.compile(r"\b(?:(?:19|20)\d\d|\d{1,2}(?::\d\d|\s?[ap]m))\b", re.IGNORECASE)
_SENTENCE = re.compile(r"[^.!?。！？؟]+[.!?。！？؟]*")
_QUESTION_MARKS = ("?", "？", "؟")


def text_flags(text: str) -> int:
    """Return the flags of what a text says: ASKS, TELLS_TIME, STANDING and PREFERS, the percentages
    that `asking_share` and `code_share` read, and what `introduced` reads.
    """
    prose = "\n".join(prose_parts(text))
    code = max(0, round(100 * (1 - len(prose) / len(text)))) if text else 0
    return _flags_of(prose) | code << _CODE_FROM


_Flags = TypeVar("_Flags", int, "NDArray[np.int64]")


def asking_share(flags: _Flags) -> _Flags:
    """Return the percentage of what a text says that asks, of its flags or an array of such."""
    return flags >> _ASKS_FROM & _PERCENT


def code_share(flags: _Flags) -> _Flags:
    """Return the percentage of a text that is code between fences, of its flags or an array of
    such.
    """
    return flags >> _CODE_FROM & _PERCENT


def introduced(flags: _Flags) -> _Flags:
    """Return what a text says of who its speaker is, as `introduction` does, of its flags or an
    array of such.
    """
    return flags >> _WHO_FROM & _KINDS


def _flags_of(text: str) -> int:
    flags = (TELLS_TIME if has_time_word(text) else 0) | (STANDING if is_standing(text) else 0)
    flags |= (PREFERS if states_preference(text) else 0) | introduction(text) << _WHO_FROM
    if not any(mark in text for mark in _QUESTION_MARKS):
        return flags
    sentences = _SENTENCE.findall(text)
    asking = [
        len(sentence) for sentence in sentences if sentence.rstrip().endswith(_QUESTION_MARKS)
    ]
    total = sum(map(len, sentences))
    percent = round(100 * sum(asking) / total) if total else 0
    ends = bool(sentences) and text.rstrip().rstrip("\"')!").endswith(_QUESTION_MARKS)
    return flags | (ASKS if ends else 0) | percent << _ASKS_FROM


def has_time_word(text: str) -> bool:
    """Return True if the text contains a word of time, a year or an hour."""
    return (
        not _TIME_WORDS.isdisjoint((_WORD if text.isascii() else _ANY_WORD).findall(text.lower()))
        or _YEAR_OR_HOUR.search(text) is not None
        or (not text.isascii() and _UNSPACED_TIME.search(text) is not None)
    )
