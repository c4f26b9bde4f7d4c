"""Small conversations of our own in other languages than English, with questions that bend their
words otherwise.
"""

from __future__ import annotations

SPEAKERS = {
    "de": ("Lena", "Jonas"),
    "fr": ("Camille", "Hugo"),
    "es": ("Lucía", "Mateo"),
    "it": ("Giulia", "Marco"),
    "pt": ("Beatriz", "Tiago"),
    "nl": ("Sanne", "Daan"),
    "pl": ("Zofia", "Kuba"),
    "ru": ("Ольга", "Павел"),
}

SAID: dict[str, tuple[list[str], list[tuple[str, int]]]] = {
    "de": (
        [
            "Wir haben gestern drei Kisten mit Äpfeln geerntet.",
            "Großartig! Meine Schwester hat inzwischen zwei Häuser am See besichtigt.",
            "Hat ihr eines gefallen?",
            "Das kleinere, aber die Dächer müssten erneuert werden.",
            "Unser Hund wurde am Dienstag beim Tierarzt geimpft.",
            "Der Nachbar verkauft seine alten Fahrräder.",
            "Die Kinder lernen gerade schwimmen, jeden Freitag im Hallenbad.",
            "Ich schreibe an einem Buch über vergessene Handwerke.",
        ],
        [
            ("Wie viele Apfelkisten gab es bei der Ernte der Äpfel?", 0),
            ("Welches Haus hat die Schwester besichtigen wollen?", 1),
            ("Wer muss das Dach erneuern lassen?", 3),
            ("Wann war die Impfung der Hunde, und welcher Tierarzt hat impfen dürfen?", 4),
            ("Wer möchte ein altes Fahrrad verkaufen?", 5),
            ("Wo schwimmt das Kind freitags?", 6),
            ("Welche Bücher hat Jonas geschrieben?", 7),
        ],
    ),
    "fr": (
        [
            "Nous avons planté deux cerisiers derrière la maison.",
            "Ma cousine travaille désormais dans une bibliothèque à Nantes.",
            "Les chevaux de mon oncle sont tombés malades cet hiver.",
            "Le boulanger fermera sa boutique en avril.",
            "J'apprends à réparer des montres anciennes.",
            "Mon frère cuisine de mieux en mieux, surtout les gâteaux.",
            "Les enfants préparent un spectacle de marionnettes.",
            "On a repeint les volets en bleu pâle.",
        ],
        [
            ("Qui a planté un cerisier ?", 0),
            ("Dans quelles bibliothèques travaillait la cousine ?", 1),
            ("Quel cheval était malade ?", 2),
            ("Quand vont fermer les boutiques des boulangers ?", 3),
            ("Qui répare une montre ancienne ?", 4),
            ("Quel gateau a-t-il cuisiné ?", 5),
            ("De quelle couleur est le volet ?", 7),
        ],
    ),
    "es": (
        [
            "Compramos tres gallinas para el corral.",
            "Mi abuela cose vestidos para el teatro del barrio.",
            "Los ladrones rompieron dos ventanas de la panadería.",
            "Estoy aprendiendo a tocar el violín con un profesor jubilado.",
            "Mañana viajaremos en tren a Valencia.",
            "El médico le recetó unas pastillas muy amargas.",
            "Pintaron los bancos del parque de color naranja.",
            "Mi vecina colecciona teléfonos antiguos.",
        ],
        [
            ("¿Quién compró una gallina?", 0),
            ("¿Qué vestido cosía la abuela?", 1),
            ("¿Qué ventana rompió el ladrón?", 2),
            ("¿Quién aprende a tocar violines?", 3),
            ("¿A dónde viajan los trenes de mañana?", 4),
            ("¿Qué pastilla recetaron los médicos?", 5),
            ("¿De qué color pintaste el banco?", 6),
            ("telefono antiguo", 7),
        ],
    ),
    "it": (
        [
            "Abbiamo raccolto quattro cesti di funghi nel bosco.",
            "Mia sorella insegna matematica ai ragazzi del paese.",
            "Il gatto ha graffiato le poltrone nuove.",
            "Domenica ripareremo la barca del nonno.",
            "La pioggia ha rovinato i pomodori.",
            "Studio il giapponese tutte le sere.",
            "Hanno venduto il mulino a una coppia svizzera.",
            "Le finestre della cantina non chiudono bene.",
        ],
        [
            ("Chi raccoglie un fungo nel bosco?", 0),
            ("A quale ragazzo insegnava matematica?", 1),
            ("Quale poltrona graffiavano i gatti?", 2),
            ("Chi deve riparare le barche?", 3),
            ("Quale pomodoro è stato rovinato dalle piogge?", 4),
            ("Quali mulini vendono?", 6),
            ("Quale finestra non chiude?", 7),
        ],
    ),
    "pt": (
        [
            "Plantámos duas oliveiras no quintal.",
            "O meu irmão conserta relógios numa oficina pequena.",
            "As crianças perderam as chaves da garagem.",
            "Ontem chegaram três caixas de livros usados.",
            "A professora organiza excursões à serra.",
            "Os pescadores venderam toda a sardinha de manhã.",
            "Estou a escrever canções para a festa da aldeia.",
            "A ponte velha vai ser demolida em outubro.",
        ],
        [
            ("Quem plantou uma oliveira?", 0),
            ("Que relógio consertou o irmão?", 1),
            ("Quem perdeu a chave da garagem?", 2),
            ("Que caixa de livro chegou?", 3),
            ("Que excursão organizou a professora?", 4),
            ("O que vendia o pescador?", 5),
            ("Quem escreve uma canção?", 6),
        ],
    ),
    "nl": (
        [
            "We hebben vorige week twee egels in de tuin gevonden.",
            "Mijn broer bouwt houten boten in een loods.",
            "De buren verhuisden naar een boerderij bij Assen.",
            "Ik heb de fietsen naar de zolder gebracht.",
            "De juf leest elke dag verhalen voor.",
            "Mijn moeder bakt taarten voor de markt.",
            "De ramen van de kerk zijn schoongemaakt.",
            "We vlogen in september naar Lissabon.",
        ],
        [
            ("Wie vond een egel in de tuinen?", 0),
            ("Welke boot heeft de broer gebouwd?", 1),
            ("Waarheen verhuist de buurman van de boerderijen?", 2),
            ("Waar is de fiets?", 3),
            ("Welk verhaal las de juf?", 4),
            ("Wie bakte de taart voor de markten?", 5),
            ("Wanneer vliegen jullie naar Lissabon?", 7),
        ],
    ),
    "pl": (
        [
            "Kupiliśmy dwa stare rowery na targu.",
            "Moja siostra maluje obrazy olejne.",
            "Dzieci zbierały kasztany w parku.",
            "Sąsiad naprawia dachy w całej okolicy.",
            "W piątek jedziemy pociągiem do Gdańska.",
            "Babcia upiekła cztery ciasta ze śliwkami.",
            "Nasze koty boją się burzy.",
            "Uczę się grać na skrzypcach.",
        ],
        [
            ("Kto kupił stary rower?", 0),
            ("Jaki obraz namalowała siostra?", 1),
            ("Kto zbierał kasztan w parkach?", 2),
            ("Który dach naprawiał sąsiad?", 3),
            ("Jakie ciasto piekła babcia?", 5),
            ("Czego boi się kot?", 6),
        ],
    ),
    "ru": (
        [
            "Мы посадили три яблони за домом.",
            "Моя сестра преподаёт физику в вечерней школе.",
            "Соседские собаки громко лаяли всю ночь.",
            "Дедушка чинит старинные часы.",
            "В субботу поедем на озеро за рыбой.",
            "Дети потеряли ключи от сарая.",
            "Я пишу рассказы о маяках.",
            "На рынке продавали вкусные груши.",
        ],
        [
            ("Кто посадил яблоню?", 0),
            ("В каких школах преподавала сестра?", 1),
            ("Какая собака лает ночью?", 2),
            ("Кто починил старинный будильник, часы?", 3),
            ("На какие озера ездили за рыбами?", 4),
            ("Кто потерял ключ от сарая?", 5),
            ("Какой рассказ написали о маяке?", 6),
            ("Где продается груша?", 7),
        ],
    ),
}
"""By language what was said, in turns, and what is asked with the place of the turn that answers.
"""

UNSPACED: dict[str, tuple[list[str], list[tuple[str, int]]]] = {
    "zh": (
        [
            "我们下周去北京开会。",
            "好的，火车票已经买了吗？",
            "买了，星期三上午九点出发。",
            "酒店订在天安门附近。",
        ],
        [("火车票是几点出发的？", 2), ("酒店在哪里？", 3), ("去哪个城市开会？", 0)],
    ),
    "ja": (
        [
            "昨日、新しい猫を飼い始めました。",
            "名前は何ですか？",
            "名前はさくらです。",
            "魚が大好きで、よく寝ます。",
        ],
        [
            ("新しい猫はいつ飼い始めましたか", 0),
            ("猫の名前はさくらですか", 2),
            ("魚が好きなのは誰ですか", 3),
        ],
    ),
    "ko": (
        [
            "어제 새 자전거를 샀어요.",
            "무슨 색이에요?",
            "파란색이고 아주 가벼워요.",
            "주말에 한강에서 탈 거예요.",
        ],
        [("자전거를 언제 샀어요?", 0), ("파란색 자전거", 2), ("한강에서 무엇을 탈 거예요?", 3)],
    ),
}
"""Same as `SAID`, in languages that write no spaces, or do not need them."""
