"""Who somebody is, said in passing, is found when it is asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick import Actor, Tally
from tallystick.ranking.introductions import (
    AGE,
    HOME,
    NAME,
    WORK,
    asked_of_oneself,
    asked_of_speaker,
    introduction,
    introduction_passage,
)
from tallystick.records import NewMemory
from tallystick.settings import Settings

SAID = {
    "I'm Craig, a 44-year-old colour technologist from Dundee.": NAME | AGE | WORK | HOME,
    "It matters for my growth as a 44-year-old colour technologist from Dundee": AGE | WORK | HOME,
    "I'm Ida Holm, a film producer based in Tromsø, and need a plan.": NAME | WORK | HOME,
    "Is it too late for me, I'm 44 and just starting?": AGE,
    "At fifty-two I want to have it simple.": AGE,
    "I'm sixteen years old.": AGE,
    "As a nurse I get little time for it.": WORK,
    "Sort these, because I work nights.": WORK,
    "I'm self-employed, so which form do I need?": WORK,
    "I moved to Cork in spring, what do I have to register?": HOME,
    "We are still renting a flat in Leeds.": HOME,
    "I live alone in a village.": HOME,
    "I've just moved back to Leeds.": HOME,
    "Everybody calls me Bea.": NAME,
    "Ich heiße Jonas und wohne in Kassel.": NAME | HOME,
    "Ich bin Lehrer und arbeite bei der Stadt.": WORK,
    "Ich bin 41 Jahre alt.": AGE,
    "Je m'appelle Luc, j'habite à Lyon et je suis infirmier.": NAME | HOME | WORK,
    "J'ai trente-deux ans.": AGE,
    "Me llamo Inés, tengo treinta años y vivo en Vigo.": NAME | AGE | HOME,
    "Soy enfermera.": WORK,
    "Mi chiamo Ugo, ho 50 anni, abito a Pisa e lavoro come cuoco.": NAME | AGE | HOME | WORK,
    "Meu nome é Rui, moro em Braga e sou professor.": NAME | HOME | WORK,
    "Ik heet Joris, ik woon in Gent en ik werk als kok.": NAME | HOME | WORK,
    "Меня зовут Олег, мне 40 лет, живу в Томске, работаю в школе.": NAME | AGE | HOME | WORK,
    "我叫王芳，今年三十二岁，住在杭州。": NAME,
    "我今年32岁，我在医院工作。": AGE | WORK,
    "我来自西安。": HOME,
    "私の名前は田中です。私は札幌に住んでいます。": NAME | HOME,
    "私は32歳です。私は病院で働いています。": AGE | WORK,
    "제 이름은 민수예요. 저는 부산에 살아요.": NAME | HOME,
    "저는 32살이고 저는 병원에서 일해요.": AGE | WORK,
}
SAYS_NOTHING = """
I'm a bit tired, and the plan is a mess.
I'm 5 minutes late, and 100% sure of it.
As a result I got an error; as a test we ran it again.
I met Alexis, a 67-year-old veteran director.
My son is 12 years old, and lives in Leeds.
I've been working on it for hours, as a matter of fact.
I'm from now on the one who reviews.
We moved the office to Zurich, and I moved to the next task.
The dance studio on the corner is hers.
She works as a nurse in Dundee.
Ich bin müde und komme später.
今天天气真好。
"""
ASKED = {
    "What profession did I mention I work in?": WORK,
    "What do I do for a living?": WORK,
    "Do you remember what my job is? What is my job?": WORK,
    "Where do I work?": WORK,
    "How old am I?": AGE,
    "What's my name?": NAME,
    "Which city do I live in?": HOME,
    "Where am I from?": HOME,
    "Who am I?": NAME | AGE | WORK | HOME,
    "What do you know about me?": NAME | AGE | WORK | HOME,
    "Was bin ich von Beruf?": WORK,
    "Wo wohne ich?": HOME,
    "Quel âge ai-je ?": AGE,
    "¿Cómo me llamo?": NAME,
    "Dove abito?": HOME,
    "Qual é a minha profissão?": WORK,
    "Hoe oud ben ik?": AGE,
    "Как меня зовут?": NAME,
    "我住在哪里？": HOME,
    "私の名前は何ですか？": NAME,
    "제 직업이 뭐예요?": WORK,
}
ASKED_OF_SPEAKERS = {
    "What does Rachel do?": WORK,
    "When was Ethan born?": AGE,
    "What is Joey's age?": AGE,
    "Where did Richard grow up?": HOME,
}
ASKS_OTHER = """
How should I describe my job in a letter?
Can you help me to find a job in Leeds?
What should my home address look like on an envelope?
Write a story about how old trees live.
What temporary job did Jon take to cover expenses?
Where did Monica return from?
When is Melanie's daughter's birthday?
What did I say about the plan?
How many cities did we compare?
"""


@pytest.mark.parametrize(("text", "kinds"), SAID.items())
def test_what_a_text_says_of_its_speaker_is_read(text: str, kinds: int) -> None:
    assert introduction(text) == kinds


@pytest.mark.parametrize("text", SAYS_NOTHING.strip().splitlines())
def test_what_is_said_of_others_or_of_a_moment_is_no_introduction(text: str) -> None:
    assert introduction(text) == 0
    assert introduction_passage(text) is None


@pytest.mark.parametrize(("query", "kinds"), ASKED.items())
def test_a_question_for_who_the_asker_is_is_read(query: str, kinds: int) -> None:
    assert asked_of_oneself(query) == kinds


@pytest.mark.parametrize(("query", "kinds"), ASKED_OF_SPEAKERS.items())
def test_a_question_for_who_a_speaker_is_is_no_question_for_the_asker(
    query: str, kinds: int
) -> None:
    assert asked_of_speaker(query) == kinds
    assert asked_of_oneself(query) == 0


@pytest.mark.parametrize("query", ASKS_OTHER.strip().splitlines())
def test_other_questions_and_requests_for_advice_ask_nobody_who_they_are(query: str) -> None:
    assert asked_of_oneself(query) == asked_of_speaker(query) == 0


REQUESTS = [
    f"Can you compare the {what} for the hall and tell me which one lasts, the {other} or the rest?"
    for what in ("lamps", "chairs", "paints", "floors", "doors", "shelves", "curtains", "clocks")
    for other in ("cheap ones", "blue ones", "old ones", "heavy ones", "new ones")
]
ASIDE = "Can you plan the hall again, as a nurse I get little time for it, and keep the lamps?"
OTHERS = "The man who sold us the lamps works as a judge in town, is that of use?"


def _chat(tally: Tally, actor: Actor, aside: str) -> None:
    texts = [*REQUESTS[:20], aside, OTHERS, *REQUESTS[20:]]
    page = "Here is a plan in steps. Compare what each of them costs and who decides. " * 8
    tally.bind(actor).remember_many(
        NewMemory(content=text, kind="turn", speaker=speaker, conversation="hall")
        for said in texts
        for speaker, text in (("user", said), ("assistant", f"As a plumber I work nights. {page}"))
    )


@pytest.mark.parametrize("large_scope", [100_000, 10])
def test_what_a_user_says_of_himself_in_passing_is_found_first(
    open_tally: Callable[..., Tally], large_scope: int
) -> None:
    with open_tally(settings=Settings(large_scope=large_scope)) as tally:
        anna, ben = Actor(user="anna"), Actor(user="ben")
        _chat(tally, anna, ASIDE)
        _chat(tally, ben, "As a baker I get little time for it, so which lamps are to stay?")
        found = tally.bind(anna).recall("What do I do for a living?")
        assert found[0].memory.content == ASIDE
        assert found[0].signals["introduction"] == 1.0
        assert [hit.signals.get("introduction") for hit in found[1:]] == [None] * (len(found) - 1)
        unknown = tally.bind(anna).recall("How old am I?")
        assert not any("introduction" in hit.signals for hit in unknown)


def test_the_speaker_who_is_asked_about_is_the_one_who_said_it(
    open_sqlite: Callable[..., Tally],
) -> None:
    with open_sqlite() as tally:
        me = tally.bind()
        me.remember_many(
            NewMemory(content=text, kind="turn", speaker=speaker, conversation="train")
            for speaker, text in [
                ("Mia", "Is this seat free? I work as a judge, so I have much to read."),
                ("Leo", "Please. I'm a baker, and on my way to the north."),
                ("Mia", "Then you know the early trains."),
            ]
        )
        assert "baker" in me.recall("What does Leo do for a living?")[0].memory.content
        assert "judge" in me.recall("What does Mia do for a living?")[0].memory.content


def test_a_wake_says_who_the_user_is_by_the_sentence_that_says_it(
    open_tally: Callable[..., Tally],
) -> None:
    with open_tally() as tally:
        me = tally.bind(Actor(user="anna"))
        long = " ".join(REQUESTS[:12])
        me.remember_many(
            NewMemory(content=text, kind="turn", speaker=speaker, conversation="hall")
            for speaker, text in [
                ("user", f"{long} I moved to Cork in spring. {long}"),
                ("assistant", "I'm an assistant, and I live in Dundee."),
            ]
        )
        pack = me.wake()
        [item] = [item for item in pack.items if item.chosen_as == "introduction"]
        assert item.text == "user: I moved to Cork in spring."
        assert item.cut


def test_who_the_user_is_is_known_and_so_given_to_a_turn_that_asks(
    open_sqlite: Callable[..., Tally],
) -> None:
    with open_sqlite() as tally:
        anna = Actor(user="anna")
        _chat(tally, anna, ASIDE)
        for query in ("What do you know about me?", "Who am I?", "What do I do for a living?"):
            assert tally.bind(anna).recall(query).confident
        assert not tally.bind(anna).recall("What do you know about compilers?").confident
