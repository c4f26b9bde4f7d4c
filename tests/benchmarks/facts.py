"""Conversations that are made from sentences of our own, one for each of several languages: facts
about people, each told once among as many that look alike, and questions in other words.

Everything is drawn from a seed, so that a row of `make eval-recall` is the same everywhere. No
sentence comes from a data set.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Language:
    """The sentences of one language."""

    names: tuple[str, ...]
    topics: tuple[tuple[str, str, tuple[str, ...]], ...]
    """The sentence that tells a fact of {n} with a value {v}, a question for it in other words, and
    values.
    """
    fillers: tuple[str, ...]
    """What is said between, some of it about {n}."""


_SENTENCES = {
    "English": """
Nora Felix Ingrid Oscar Wanda Hugo Petra Simon
Lovely weather today, {n} said so too.
{n} called me yesterday.
Shall we have dinner together?
Really? How nice!
How is {n} these days?
I think so too.
Ask {n} about the weekend.

{n} moved to {v} last month.
In which city does {n} live these days?
Leeds, Bristol, Dundee, Cork, Exeter, Norwich, Swansea, Derby

{v} give {n} a rash, so keep them out of the soup.
Which food is {n} allergic to?
Peanuts, Shrimps, Eggs, Peaches, Walnuts, Strawberries, Lentils, Mangoes

{n} picked up a puppy from the shelter and named it {v}.
What is the dog of {n} called?
Biscuit, Comet, Pepper, Waffle, Thunder, Clover, Noodle, Domino

{n} started at the {v} in spring.
Where is {n} employed?
post office, bakery, shipyard, library, airport, printing house, aquarium, observatory

{n} spends every weekend on {v}.
What hobby does {n} have?
climbing, pottery, fencing, chess, sailing, calligraphy, archery, beekeeping

Next year {n} is going to fly to {v}.
Which country does {n} want to visit?
Egypt, Norway, Greece, Peru, Thailand, Iceland, Morocco, Portugal

The daughter of {n} enrolled in {v}.
What does the child of {n} study?
law, chemistry, architecture, history, nursing, accounting, philosophy, botany

{n} bought a {v} bicycle.
What colour is the bike that {n} rides?
red, green, yellow, purple, white, grey, blue, orange
""",
    "Chinese": """
王芳 李强 张敏 刘洋 陈静 赵磊 孙丽 周杰
今天天气真好，{n}也这么说。
{n}昨天给我打电话了。
我们晚上一起吃饭吧。
真的吗？太好了！
{n}最近怎么样？
我也这么觉得。
周末记得叫上{n}。

{n}上个月搬到{v}去住了。
{n}现在住在哪个城市？
杭州, 成都, 西安, 青岛, 昆明, 厦门, 苏州, 大连

{n}对{v}过敏，一吃就不舒服。
做饭时{n}不能吃什么？
花生, 虾, 牛奶, 芒果, 鸡蛋, 核桃, 海带, 菠萝

{n}养了一只叫{v}的小狗。
{n}家的宠物叫什么名字？
豆豆, 雪球, 大黄, 可乐, 饼干, 团子, 闪电, 芝麻

{n}在{v}上班，工作很忙。
{n}的职业单位是哪里？
医院, 银行, 邮局, 图书馆, 机场, 出版社, 电视台, 博物馆

{n}每周末都去练{v}。
{n}平时有什么爱好？
书法, 吉他, 游泳, 太极拳, 摄影, 攀岩, 羽毛球, 钢琴

{n}打算明年去{v}旅行。
{n}想去哪个国家玩？
埃及, 挪威, 希腊, 秘鲁, 泰国, 冰岛, 摩洛哥, 葡萄牙

{n}的女儿考上了{v}专业。
{n}的孩子大学学什么？
法律, 化学, 建筑, 历史, 护理, 会计, 哲学, 农业

{n}买了一辆{v}的自行车。
{n}的车是什么颜色的？
红色, 绿色, 黄色, 紫色, 白色, 灰色, 橙色, 蓝色
""",
    "Japanese": """
田中 鈴木 佐藤 高橋 山本 中村 小林 加藤
今日はいい天気ですね、{n}さん。
昨日{n}さんから電話がありました。
晩ご飯を一緒に食べましょう。
本当ですか？いいですね。
{n}さんは最近どうですか？
そうですね。
週末に{n}さんも誘いましょう。

{n}さんは先月{v}に引っ越しました。
{n}さんは今どこに住んでいますか？
札幌, 福岡, 京都, 仙台, 広島, 金沢, 神戸, 長崎

{n}さんは{v}を食べると具合が悪くなります。
{n}さんのアレルギーは何ですか？
落花生, 海老, 牛乳, 卵, 蕎麦, 桃, 胡桃, 蟹

{n}さんの飼い犬の名前は{v}です。
{n}さんのペットは何と呼ばれていますか？
ポチ, ハナ, クロ, モモ, コタロウ, ユキ, マロン, ソラ

{n}さんは{v}に勤めています。
{n}さんの職場はどこですか？
病院, 銀行, 郵便局, 図書館, 空港, 出版社, 水族館, 市役所

{n}さんは毎週{v}を習っています。
{n}さんの趣味は何ですか？
書道, 水泳, 将棋, 茶道, 写真, 陶芸, 剣道, 三味線

{n}さんは来年{v}へ旅行する予定です。
{n}さんが行きたい国はどこですか？
エジプト, ノルウェー, ギリシャ, ペルー, タイ, アイスランド, モロッコ, ポルトガル

{n}さんの娘は大学で{v}を専攻します。
{n}さんの子供は何を勉強しますか？
法律, 化学, 建築, 歴史, 看護, 会計, 哲学, 農学

{n}さんは{v}自転車を買いました。
{n}さんの乗り物は何色ですか？
赤い, 緑の, 黄色い, 紫の, 白い, 灰色の, 青い, 黒い
""",
    "Korean": """
민수 지영 현우 수진 동현 은지 태호 미경
오늘 날씨가 좋네요, {n}도 그랬어요.
어제 {n}가 전화했어요.
저녁 같이 먹어요.
정말요? 잘됐네요.
{n}는 요즘 어때요?
저도 그렇게 생각해요.
주말에 {n}도 불러요.

{n}는 지난달에 {v}로 이사했어요.
{n}가 지금 사는 도시는 어디예요?
부산, 대구, 광주, 대전, 제주, 수원, 강릉, 전주

{n}는 {v} 알레르기가 있어서 못 먹어요.
{n}에게 주면 안 되는 음식은 뭐예요?
땅콩, 새우, 우유, 계란, 메밀, 복숭아, 호두, 게

{n}는 {v}라는 강아지를 키워요.
{n}의 반려동물 이름이 뭐예요?
초코, 보리, 콩이, 구름, 두부, 하늘, 단추, 밤비

{n}는 {v}에서 일해요.
{n}의 직장은 어디예요?
병원, 은행, 우체국, 도서관, 공항, 출판사, 방송국, 박물관

{n}는 주말마다 {v}를 배워요.
{n}의 취미가 뭐예요?
서예, 기타, 수영, 태권도, 사진, 도자기, 배드민턴, 피아노

{n}는 내년에 {v}로 여행을 가려고 해요.
{n}가 가고 싶은 나라는 어디예요?
이집트, 노르웨이, 그리스, 페루, 태국, 아이슬란드, 모로코, 포르투갈

{n}의 딸은 대학에서 {v}을 전공해요.
{n}의 아이는 무슨 공부를 해요?
법학, 화학, 건축, 역사, 간호, 회계, 철학, 농업

{n}는 {v} 자전거를 샀어요.
{n}의 자전거 색깔은 뭐예요?
빨간, 초록, 노란, 보라, 하얀, 회색, 파란, 검은
""",
    "Russian": """
Иван Олег Виктор Андрей Сергей Павел Денис Максим
Погода сегодня хорошая, {n} тоже так сказал.
Вчера звонил {n}.
Давай вечером поужинаем вместе.
Правда? Как здорово!
Как дела, {n} не говорил?
Я тоже так думаю.
Позови и его, {n} будет рад.

{n} в прошлом месяце переехал в {v}.
В каком городе теперь живёт {n}?
Казань, Томск, Псков, Омск, Самару, Пермь, Тулу, Уфу

У меня {n} в гостях не ест {v}: сразу сыпь.
На какую еду у {n}а аллергия?
арахис, креветки, молоко, яйца, мёд, персики, орехи, клубнику

{n} завёл щенка по кличке {v}.
Как зовут собаку, которая у {n}а?
Буран, Рекс, Шарик, Тузик, Граф, Лорд, Снежок, Кекс

{n} устроился работать на {v}.
Где находится работа {n}а?
почту, завод, радио, вокзал, стройку, ферму, телевидение, верфь

{n} по выходным занимается: {v}.
Какое увлечение у {n}а?
лыжи, гитара, плавание, шахматы, съёмка, гончарное дело, бокс, пение

{n} собирается будущим летом в {v}.
Какую страну хочет посетить {n}?
Египет, Норвегию, Грецию, Перу, Таиланд, Исландию, Марокко, Португалию

Дочь, которую растит {n}, поступила на {v}.
Что изучает ребёнок {n}а?
право, химию, архитектуру, историю, медицину, экономику, философию, биологию

{n} купил {v} велосипед.
Какого цвета транспорт {n}а?
красный, зелёный, жёлтый, фиолетовый, белый, серый, синий, чёрный
""",
    "German": """
Lena Jonas Katrin Tobias Ulrike Stefan Miriam Holger
Das Wetter ist schön, meinte {n} auch.
Gestern hat {n} angerufen.
Wollen wir zusammen essen?
Wirklich? Wie schön!
Wie geht es {n} eigentlich?
Das denke ich auch.
Frag doch {n} fürs Wochenende.

{n} ist letzten Monat nach {v} gezogen.
In welcher Stadt wohnt {n} inzwischen?
Kassel, Bremen, Dresden, Aachen, Rostock, Passau, Erfurt, Mainz

Von {v} bekommt {n} sofort Ausschlag.
Was darf man {n} wegen der Allergie nicht kochen?
Erdnüssen, Krabben, Milch, Eiern, Honig, Pfirsichen, Walnüssen, Erdbeeren

{n} hat sich einen Welpen geholt, er heißt {v}.
Wie wird der Hund von {n} gerufen?
Bruno, Flocke, Rex, Keks, Balu, Momo, Struppi, Wolke

{n} hat jetzt eine Stelle bei der {v}.
Wo arbeitet {n}?
Post, Sparkasse, Feuerwehr, Bahn, Stadtverwaltung, Druckerei, Sternwarte, Werft

{n} übt jedes Wochenende {v}.
Welches Hobby hat {n}?
Klettern, Gitarre, Schwimmen, Schach, Töpfern, Fechten, Segeln, Klavier

{n} fliegt nächstes Jahr nach {v}.
Welches Land möchte {n} besuchen?
Ägypten, Norwegen, Griechenland, Peru, Thailand, Island, Marokko, Portugal

Die Tochter von {n} hat sich für {v} eingeschrieben.
Was studiert das Kind von {n}?
Jura, Chemie, Architektur, Geschichte, Pflege, Informatik, Philosophie, Biologie

{n} hat ein {v} Fahrrad gekauft.
Welche Farbe hat das Rad von {n}?
rotes, grünes, gelbes, lila, weißes, graues, blaues, schwarzes
""",
    "Spanish": """
Lucía Mateo Carmen Javier Elena Andrés Marta Sergio
Hace buen tiempo, {n} también lo dijo.
Ayer llamó {n}.
¿Cenamos juntos esta noche?
¿De verdad? ¡Qué bien!
¿Cómo está {n}?
Yo también lo creo.
Dile a {n} que venga el sábado.

{n} se mudó el mes pasado a {v}.
¿En qué ciudad vive ahora {n}?
Bilbao, Cádiz, Murcia, Oviedo, Toledo, Burgos, Vigo, Huelva

A {n} le salen ronchas con {v}.
¿Qué alergia tiene {n} al comer?
los cacahuetes, las gambas, la leche, los huevos, la miel, el melocotón, las nueces, las fresas

{n} adoptó un cachorro, se llama {v}.
¿Qué nombre tiene el perro de {n}?
Bruno, Nieve, Rayo, Galleta, Coco, Luna, Chispa, Trufa

{n} ha entrado a trabajar en {v}.
¿Cuál es el empleo de {n}?
correos, el banco, la radio, el aeropuerto, la granja, la imprenta, el acuario, el astillero

{n} practica {v} los fines de semana.
¿Qué afición tiene {n}?
escalada, guitarra, natación, ajedrez, cerámica, esgrima, vela, piano

{n} volará el año que viene a {v}.
¿Qué país quiere visitar {n}?
Egipto, Noruega, Grecia, Perú, Tailandia, Islandia, Marruecos, Portugal

La hija de {n} se matriculó en {v}.
¿Qué carrera estudia la niña de {n}?
derecho, química, arquitectura, historia, enfermería, informática, filosofía, biología

{n} compró una bicicleta {v}.
¿De qué color es el vehículo de {n}?
roja, verde, amarilla, morada, blanca, gris, azul, negra
""",
}
"""For each language: names and small talk, then for each topic what tells it, what asks for it, and
values.
"""


def _language(text: str) -> Language:
    first, *topics = [block.splitlines() for block in text.strip().split("\n\n")]
    return Language(
        names=tuple(first[0].split()),
        fillers=tuple(first[1:]),
        topics=tuple(
            (sentence, question, tuple(values.split(", "))) for sentence, question, values in topics
        ),
    )


LANGUAGES = {name: _language(text) for name, text in _SENTENCES.items()}


@dataclass(frozen=True)
class Facts:
    """A generated conversation."""

    turns: tuple[str, ...]
    """What the two speakers say in turn."""
    questions: tuple[tuple[str, int], ...]
    """Each question with the place of the turn that answers it."""


_THREADS = 0.1
PLAIN = 0.2
"""The part of the questions that repeat how it was told; those of the languages that bend words
most have a baseline without them that finds a fifth.
"""
_STOPS = str.maketrans("?？", ".。")


def facts(language: Language, *, seed: int = 0, threads: bool = False, plain: float = 0.0) -> Facts:
    """Return a conversation in which each fact is told once, with small talk after it, and of the
    questions for which the part `plain` repeats how it was told; with `threads`, a tenth of the
    facts is the bare answer to what the other asked.
    """
    chance, repeats = random.Random(seed), random.Random(-1 - seed)
    cells = [(name, topic) for name in language.names for topic in language.topics]
    chance.shuffle(cells)
    values = {topic[0]: chance.sample(topic[2], len(topic[2])) for topic in language.topics}
    turns: list[str] = []
    questions: list[tuple[str, int]] = []
    for name, (sentence, question, _) in cells:
        value, asked = values[sentence].pop(), question.format(n=name)
        if threads and chance.random() < _THREADS:
            turns += [asked, value[:1].upper() + value[1:] + asked[-1].translate(_STOPS)]
        else:
            turns.append(sentence.format(n=name, v=value))
            if plain and repeats.random() < plain:
                start = "¿" if asked.startswith("¿") else ""
                told = sentence.format(n=name, v="…").rstrip(".。")
                asked = f"{start}{told}{asked[-1]}"
        questions.append((asked, len(turns) - 1))
        turns += [
            chance.choice(language.fillers).format(n=chance.choice(language.names))
            for _ in range(chance.randint(1, 3))
        ]
    return Facts(tuple(turns), tuple(questions))


_HELP = (
    "Can you help me to plan around that?",
    "What should I keep in mind?",
    "Could you draft a short message about it?",
    "How would you go about it?",
)
_ADVICE = (
    "Here is a step-by-step plan that takes {n} into account.",
    "First, write down which {w} matter most and by when they are due.",
    "Then compare three options, with what each of them costs and who decides.",
    "Many people find that {w} are easier to settle in the morning.",
    "A city, a job, a hobby, a trip to another country, a bike, food and pets all need time.",
    "Keep a budget of {d} hours and {m} pounds, and look at it every week.",
    "By {d} March, send {n} a reminder, and by {m} June a second one.",
    "If a child studies or a dog is sick, leave some room in the schedule.",
    "Finally, review what worked, note the colour of each label, and celebrate.",
    "Would you like me to turn this into a table?",
)
_ASKS = (
    "Could you look up what is new there?",
    "What did you find?",
    "Can you check that for me?",
    "Please search for it.",
)
_REPEATED = 0.5
"""The part of the questions for what an assistant told that repeat how it was told."""
_SMALL_TALK = 12
"""Sentences of a page in a language other than English."""
_NUMBERS = (
    "By the way, {n} owes me {m} pounds since {d} May.",
    "I have {d} meetings on {m} July, {n} is in two of them.",
    "My train leaves at {d}:30 from platform {m}.",
)


def chat(*, seed: int = 0, code: bool = False) -> Facts:
    """Return a chat of a user with an assistant: the user tells and asks in a line, with numbers
    and dates that answer nothing between; the assistant answers with a page. With `code` most
    of what the user says has a piece of code after it.
    """
    chance = random.Random(seed)
    talk = facts(LANGUAGES["English"], seed=seed)
    answers = {place for _, place in talk.questions}
    turns: list[str] = []
    places: dict[int, int] = {}
    for place, text in enumerate(talk.turns):
        aside = _filled(chance.choice(_NUMBERS), chance)
        line = f"{aside} {text}" if place in answers else aside
        places[place] = len(turns)
        pasted = _pasted(chance) if code and chance.random() < _PASTING else ""
        turns.append(f"{line} {chance.choice(_HELP)}{pasted}")
        page = chance.sample(_ADVICE[:-1], 7)
        restated = f"Thank you for telling me: {text}" if place in answers else "Sure!"
        turns.append(" ".join([restated, *(_filled(line, chance) for line in page), _ADVICE[-1]]))
    return Facts(
        tuple(turns), tuple((question, places[place]) for question, place in talk.questions)
    )


def told(*, seed: int = 0, asked: bool = False, language: str = "English") -> Facts:
    """Return a chat in which every second fact is told by the assistant alone, in the midst of a
    page, after a line of the user that says nothing of it; the user tells the others, and the
    assistant repeats them. The questions are for what the assistant told, and some repeat how; with
    `asked` they say, in English, that it was the assistant.

    Pages are of advice in English, and of small talk in other languages.
    """
    chance = random.Random(seed)
    spoken = LANGUAGES[language]
    talk = facts(spoken, seed=seed, plain=_REPEATED)
    answers = {place for _, place in talk.questions}
    by_assistant = set(chance.sample(sorted(answers), len(answers) // 2))

    def small_talk(count: int) -> list[str]:
        lines = chance.choices(spoken.fillers, k=count)
        return [line.format(n=chance.choice(spoken.names)) for line in lines]

    turns: list[str] = []
    places: dict[int, int] = {}
    for place, text in enumerate(talk.turns):
        is_told = place in by_assistant
        if language == "English":
            line = [_filled(chance.choice(_NUMBERS), chance)]
            line.append(chance.choice(_ASKS if is_told else _HELP))
            page = [_filled(each, chance) for each in chance.sample(_ADVICE[:-1], 7)]
            page.append(_ADVICE[-1])
        else:
            line, page = small_talk(1), small_talk(_SMALL_TALK)
        if is_told:
            page.insert(chance.randint(0, len(page) - 1), text)
        elif place in answers:
            line.insert(1 if language == "English" else 0, text)
            page.insert(0, text)
        places[place] = len(turns) + is_told
        turns += [_joined(line), _joined(page)]
    start = "What did you tell me: " if asked else ""
    return Facts(
        tuple(turns),
        tuple(
            (f"{start}{question}", places[place])
            for question, place in talk.questions
            if place in by_assistant
        ),
    )


_OF_MYSELF = tuple(
    block.splitlines()
    for block in """
as a {v} I get little time for it
I'm a {v} and get little time for it
since I started as a {v} there is little time for it
the {v} {n} gets little time for it
What do I do for a living?
nurse, plumber, florist, accountant, welder, librarian, surveyor, baker

I turn {v} this year
I'm {v} by now and tire easily
at {v} I want to have it simple
{n} turns {v} this year
How old am I?
31, 38, 44, 49, 52, 57, 63, 26

we are still renting a flat in {v}
I moved to {v} in spring
it is far from {v}, where I live
{n} rents a flat in {v}
Which city do I live in?
Leeds, Bristol, Dundee, Cork, Exeter, Norwich, Swansea, Derby

my wife {v} would rather decide together
my wife {v} sees it in another way
I have to ask my wife {v} first
the wife of {n}, {v}, would rather decide together
What is my spouse called?
Alice, Judith, Carla, Yvonne, Teresa, Linda, Rosa, Miriam

there are {v} kids in the house to be fed
I have {v} kids to be fed
with {v} kids at the table we need plenty
{n} has {v} kids in the house to be fed
How many children do I have?
two, three, four, five, six, seven, eight, nine

being {v} I leave out half of what others suggest
I am {v}, so half of it is out of the question
I've been {v} for years
{n} is {v} and leaves out half of what others suggest
What diet do I follow?
vegan, vegetarian, gluten-free, lactose-free, kosher, halal, keto, pescatarian

I bring home {v} a month before tax
with my {v} a month there is no room for more
they pay me {v} a month
{n} brings home {v} a month before tax
What is my salary?
2,300, 2,750, 3,100, 3,400, 3,900, 4,200, 4,800, 5,100

all of it has to fit into my old {v}
my {v} has no room for more
I would have to take the {v}, which is in the garage
all of it has to fit into the {v} of {n}
Which car do I drive?
Skoda, Volvo, Fiat, Renault, Toyota, Mazda, Opel, Honda

I read {v} at university and forgot most of it
my degree in {v} is no help there
what I learned of {v} as a student is no help there
{n} read {v} at university
What subject is my degree in?
law, chemistry, architecture, history, botany, physics, music, geology

with my {v} I have to be careful on the stairs
my {v} is getting worse
I can't because of my {v}
{n} has {v} and has to be careful on the stairs
Which illness do I suffer from?
asthma, arthritis, epilepsy, gout, anaemia, vertigo, sciatica, migraine
""".strip().split("\n\n")
)
"""For each thing that one says of oneself in passing: three ways to say it, what says it of
somebody else, the question, and values.
"""
_LONG_ASKS = tuple(
    " ".join(block.split())
    for block in """
I'm trying to decide which {w} to settle first, the ones from {d} March or the ones that came on
{m} July, …, so could you tell me what speaks for either and in which order you would go about it?

Can you look over my list of {w}, there are {d} of them and the last {m} are not sorted at all,
and tell me which can wait, because …?

I want to write to {n} about the {w} that we talked about for {d} minutes yesterday, …, how would
you begin such a letter, and should I mention the {m} pounds that are still open?

What should I think of when I compare {w} that cost {d} pounds with those for {m}, given that …,
and which of the two would you take in the long run?

Please make me a plan for the next {d} weeks so that the {w} are done by {m} June; …, and I would
like to have the weekends free.
""".strip().split("\n\n")
)
"""Long requests, with room for an aside."""
_ASIDES = (
    "the weather has been bad all week",
    "nobody has looked at it so far",
    "it has been on my mind since last month",
    "I never did this before",
    "I'd like to have it behind me",
    "there is not much room for mistakes",
)
_EMPTY_ASIDES = 50


def in_passing(*, seed: int = 0) -> Facts:
    """Return a chat of a user with an assistant, who asks in long requests and says in the midst of
    ten of them something of himself, and in twenty the like of others. The questions are for the
    ten.
    """
    chance = random.Random(seed)
    asides: list[tuple[str, str | None]] = []
    for *mine, others, asked, values in _OF_MYSELF:
        chosen = chance.sample(values.split(", "), 3)
        asides.append((chance.choice(mine).format(v=chosen[0]), asked))
        asides += [
            (others.format(n=chance.choice(LANGUAGES["English"].names), v=value), None)
            for value in chosen[1:]
        ]
    asides += [(chance.choice(_ASIDES), None) for _ in range(_EMPTY_ASIDES)]
    chance.shuffle(asides)
    turns: list[str] = []
    questions: list[tuple[str, int]] = []
    for aside, question in asides:
        if question is not None:
            questions.append((question, len(turns)))
        turns.append(_filled(chance.choice(_LONG_ASKS), chance).replace("…", aside))
        page = [_filled(line, chance) for line in chance.sample(_ADVICE[:-1], 9) * 2]
        turns.append(" ".join(["Sure!", *page, _ADVICE[-1]]))
    return Facts(tuple(turns), tuple(questions))


def _joined(sentences: Sequence[str]) -> str:
    """Return sentences as one text, with a space between them where one is written."""
    return "".join(
        sentence if not place or sentences[place - 1][-1] in "。？！" else f" {sentence}"
        for place, sentence in enumerate(sentences)
    )


def _filled(text: str, chance: random.Random) -> str:
    return text.format(
        n=chance.choice(LANGUAGES["English"].names),
        w=chance.choice(("plans", "choices", "costs", "dates", "friends", "papers")),
        d=chance.randint(2, 28),
        m=chance.randint(2, 28),
    )


_PASTING = 0.6
"""The share of a user's messages that show code, in a chat about it."""


def _pasted(chance: random.Random) -> str:
    """Return a piece of code between fences, of some forty words."""
    what = chance.choice(("order", "label", "budget", "file", "point", "price", "page", "hobby"))
    lines = [f"\n```python\ndef {chance.choice(('load', 'count', 'sort'))}_{what}s(rows):"]
    for number in range(chance.randint(2, 4)):
        lines.append(f"    {what}_{number} = rows[{chance.randint(0, 9)}].{what} or {number}")
        lines.append(f"    if {what}_{number} > {chance.randint(1, 99)}: raise ValueError(rows)")
    return "\n".join([*lines, f"    return {what}_0", "```"])


def documents(*, seed: int = 0) -> Facts:
    """Return documents of some 3,000 characters with one fact in the midst of each."""
    chance = random.Random(seed)
    talk = facts(LANGUAGES["English"], seed=seed)
    names = LANGUAGES["English"].names
    texts: list[str] = []
    questions: list[tuple[str, int]] = []
    for question, place in talk.questions:
        filler = [
            text.format(
                n=chance.choice(names), w="papers", d=chance.randint(2, 28), m=chance.randint(2, 28)
            )
            for text in chance.choices((*_ADVICE, *_NUMBERS), k=40)
        ]
        middle = chance.randint(10, 30)
        questions.append((question, len(texts)))
        texts.append(" ".join([*filler[:middle], talk.turns[place], *filler[middle:]]))
    return Facts(tuple(texts), tuple(questions))


_TASKS = """
Write a haiku about {}.
Explain how {} work to a child.
Give me three synonyms for {}.
Draft a short speech on {}.
Translate a sentence about {} into Latin.
Write unit tests for a parser of {}.
What is the history of {}?
Make a table that compares {}.
"""
_THINGS = """
compilers
volcanoes
suffix trees
black holes
vaccines
medieval castles
regular expressions
tax brackets
jet engines
sonnets
glaciers
binary search algorithms
"""

UNRELATED = tuple(
    task.format(thing)
    for task in _TASKS.strip().splitlines()
    for thing in _THINGS.strip().splitlines()
)
"""Requests that no memory of a generated conversation, or of a scene among friends, answers."""

_ASKERS = """
I need this for my class. {}
Could you help me with my homework? {}
My boss wants this from me by noon: {}
{} I have to hand it in today.
"""
_TASKS_OF_MINE = """
I have to write a haiku about {}.
I want to explain to a child how {} work.
I need three synonyms for {}.
I must give a short speech on {} at school.
Help me translate a sentence about {} into Latin.
I'd like you to write unit tests for a parser of {}.
For my homework I need the history of {}.
We were asked for a table that compares {}.
"""
UNRELATED_OF_MINE = (
    *(
        _ASKERS.strip().splitlines()[place % 4].format(request)
        for place, request in enumerate(UNRELATED)
    ),
    *(
        task.format(thing)
        for task in _TASKS_OF_MINE.strip().splitlines()
        for thing in _THINGS.strip().splitlines()
    ),
)
"""Requests of the same kind from somebody who speaks of himself."""

UNANSWERED = tuple(
    """
Where did I leave my umbrella?
What is my shoe size?
Which dentist do I go to?
How much did my last electricity bill come to?
What is the serial number of my printer?
Who repaired my roof?
When does my passport expire?
Which blood type do I have?
What did I pay for my winter tyres?
Where do we keep the fuse box key?
Which insurance covers my phone?
What is the password hint of our router?
Who painted the fence for us?
How tall is my bookshelf?
Which seat did I reserve on the ferry?
What is my locker number?
When did I last change the water filter?
Which pharmacy has my prescription?
Who tuned my piano?
What is the name of my landlord's lawyer?
How many litres does my rain barrel hold?
Which tailor shortened my coat?
When is our chimney swept?
What did I order from the seed catalogue?
""".strip().splitlines()
)
"""Questions of somebody about himself that no generated conversation, and no scene among friends,
answers.
"""
