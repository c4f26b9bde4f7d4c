"""Phrases by which the rules of extraction and decisions read a sentence, for English, German,
French, Spanish, Italian, Portuguese and Chinese.

A table is one pattern for all languages: phrases of one rarely mean something in another, and a
text needs no language of its own. To add a language, add its line to each table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property


class Phrase:
    """A pattern that is compiled when it is first used: some take long, and a process that learns
    nothing, such as a hook, needs none.
    """

    def __init__(self, source: str, flags: int = 0) -> None:
        self._source, self._flags = source, flags

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self._source, self._flags)

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        """Same as that of `re.Pattern`."""
        return self._compiled.search(text, start)

    def match(self, text: str) -> re.Match[str] | None:
        """Same as that of `re.Pattern`."""
        return self._compiled.match(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Same as that of `re.Pattern`."""
        return self._compiled.finditer(text)

    def sub(self, replacement: str, text: str, count: int = 0) -> str:
        """Same as that of `re.Pattern`."""
        return self._compiled.sub(replacement, text, count)


def phrases(*alternatives: str) -> Phrase:
    """Return one pattern for any of these phrases, as whole words and without case; a phrase that
    begins with `^` must begin the sentence.
    """
    whole = "|".join(alternatives)
    # Chinese writes no spaces: its phrases begin anywhere.
    return Phrase(rf"(?:(?<![^\W_])|(?=[\u4e00-\u9fff]))(?:{whole})", re.IGNORECASE)


_END = r"(?![^\W_])"

CHATTER = Phrase(
    r"^[\W_]*(?:"
    r"(?:hi|hello|hey|thanks?(?: you)?(?: so much| a lot| again)?|thx|ok(?:ay)?|yes|no|yeah|yep"
    r"|nope"
    r"|sure(?: thing)?|great|cool|nice|awesome|perfect|good (?:morning|night|evening|idea|point)"
    r"|sounds good|got it|see you(?: soon| later| tomorrow)?|bye|lol|haha+|no problem"
    r"|you'?re welcome|let me (?:see|think|check)|one moment|hold on|right|exactly|i see"
    r"|never ?mind|how are you|what'?s up|congrat\w*|well done|i don'?t know|not sure|maybe"
    r"|i (?:will|'?ll) (?:get back to you|think about it|let you know)"
    r"|hallo|danke(?: schön| dir| sehr| vielmals)?|ja|nein|gut(?:en (?:morgen|tag|abend))?|super"
    r"|klar"
    r"|alles klar|bis (?:dann|später|morgen|bald)|tschüss|genau|gerne|kein problem|prima"
    r"|bonjour|merci(?: beaucoup| bien)?|oui|non|d'accord|salut|à (?:bientôt|demain|plus)|bonsoir"
    r"|très bien|parfait|de rien|super merci"
    r"|hola|gracias|muchas gracias|sí|vale|de acuerdo|hasta (?:luego|mañana|pronto)|adiós|perfecto"
    r"|buen(?:os|as) (?:días|tardes|noches)|de nada|muy bien"
    r"|ciao|grazie(?: mille)?|sì|va bene|perfetto|prego|a domani"
    r"|olá|obrigad[oa]|sim|não|tudo bem|até (?:logo|amanhã)"
    r"|你好|谢谢你?|好的?|是的|再见|没问题|明白了?)"
    r"(?:[\s,]+(?:\w+|谢谢))?)[\W_]*$",
    re.IGNORECASE,
)
"""A whole sentence that says nothing to keep."""

HYPOTHETICAL = Phrase(
    r"^\s*(?:if|whether|suppose|imagine|what if|would|could|should i|shall|can you|could you"
    r"|please tell"
    r"|i wonder|maybe|perhaps|hopefully|i wish|i hope|let'?s say"
    r"|wenn|falls|ob|angenommen|stell dir vor|vielleicht|hoffentlich|könntest du|kannst du"
    r"|si |supposons|imagine|peut-être|j'espère|pourrais-tu|pouvez-vous"
    r"|supongamos|imagina|quizás?|tal vez|ojalá|espero que|podrías|puedes"
    r"|se |supponiamo|forse|spero|potresti|talvez|suponha|espero|você pode|poderia"
    r"|如果|假如|也许|可能|希望)",
    re.IGNORECASE,
)
"""The beginning of a sentence that asserts nothing."""

CONDITION = Phrase(r"^\s*(?:if|wenn|falls|si|se|als|如果) ?", re.IGNORECASE)
"""The beginning of a sentence with a condition, which may tell what to do then."""

RETRACTED = phrases(
    r"(?:please )?(?:forget|disregard|ignore|delete|remove|scratch|drop) (?:that|what|the (?:fact"
    r"|note"
    r"|part|thing|bit)|everything|my (?:note|statement|remark))",
    r"(?:please )?(?:forget|disregard|erase|delete|remove|scratch|drop|wipe|strike)(?: out)?"
    r" (?:it|this|anything|all(?: that)?|whatever|the (?:bit|part|thing|stuff|remark|note|story))"
    r" (?:that )?(?:i (?:said|told|mentioned|wrote|shared)|about|on|regarding)",
    r"(?:please )?(?:erase|wipe) (?:that|what)",
    r"i (?:hereby )?take (?:it |that |this )?back(?: what)?",
    r"never ?mind (?:about|what|the|that|my)",
    r"(?:please )?(?:don['’]t|do not) (?:keep|remember|store|save|note|hold on to) (?:that|this|the"
    r"|my|what|any)",
    r"pretend (?:that )?i (?:never|didn['’]t|hadn['’]t)",
    r"(?:remove|delete|erase|wipe|take) my [^.]{1,40}? (?:from|out of) your",
    r"(?:it|that)(?: is|'s)(?: just)? (?:not true|false|wrong|a mistake) that",
    r"i (?:was wrong|lied|misspoke)(?: when i said| about)?",
    r"vergiss(?:,)? (?:dass|was)",
    r"es stimmt nicht,? dass",
    r"(?:bitte )?lösch(?:e)? (?:die notiz|dass)",
    r"(?:bitte )?(?:lösch|streich|vergiss)(?:e)?(?: bitte)?(?: wieder)?,? (?:was|alles,? was"
    r"|das mit|die sache)",
    r"ich nehme [^.]{0,30}?zurück",
    r"tu so,? als h(?:ä|ae)tte ich",
    r"oublie(?:z)? (?:que|ce que)",
    r"ce n'est pas vrai que",
    r"(?:oublie|efface)(?:z)? (?:ce que|tout ce que|l'histoire|cette histoire|ça|le fait)",
    r"fai(?:s|tes) comme si je n['’]avais (?:rien|pas|jamais)",
    r"je retire ce que",
    r"olvida(?:te de)? (?:que|lo que)",
    r"no es (?:cierto|verdad) que",
    r"(?:olvida(?:te de)?|borra|elimina) (?:lo (?:de|que)|todo lo que|eso (?:de|que))",
    r"haz como si (?:no|nunca)",
    r"retiro lo que",
    r"dimentica (?:che|quello che)",
    r"non è vero che",
    r"(?:dimentica|cancella) (?:(?:tutto )?(?:quello|ciò) che|la storia|la cosa)",
    r"fai finta che non",
    r"esque(?:ça|ce) (?:que|o que)",
    r"não é verdade que",
    r"(?:esque(?:ça|ce)|apaga|apague) (?:aquilo|isso|(?:tudo )?o que|a história)",
    r"fa(?:z|ça) de conta que",
    r"忘掉|忘了我|忘记我说的|不要再记住|别再?记|当我没说|删掉我说的",
    # An imperative of forgetting or a denial of truth, with the matter after or before it.
    r"(?:please )?(?:scrap|strike|scratch|forget|disregard|ignore|delete|erase|remove|drop|discard)"
    r"(?: please)?,? (?:about |all about |the (?:bit|part|note|notes|entry|line|memory|info|point"
    r"|thing|story|idea|plan) (?:about|on|with|of|for|regarding|that) |that (?:about|bit|part|i )"
    r"|everything (?:about|on) )(?:the |my |our )?",
    r"(?:it|that)(?: is|['’]s)(?: just| simply)? (?:not true|not the case|untrue|false|wrong"
    r"|no longer true|not correct|incorrect)(?: any ?more| any longer)? (?:that|about)",
    r"i (?:was|am) (?:wrong|mistaken) (?:about|when i said|in saying)(?: that)?",
    r"(?:please )?(?:don['’]t|do not) (?:keep|remember|store|save|note|retain|hold on to)"
    r"(?: anything)?(?: about| on)? (?:that|this|the|my|our)?",
    r"(?:bitte )?(?:streich(?:e|t)?|lösch(?:e|t)?|vergiss|vergesst|ignorier(?:e|t)?|verwirf)"
    r"(?: bitte)?(?: wieder)? (?:das mit|die sache mit|(?:de[nrm]|die|das|meine?n?|unsere?n?)"
    r"(?: eintrag| notiz| hinweis)?(?: zu[mr]?| über)?) ?",
    r"(?:oublie|efface|supprime|ignore|raye)(?:z)? (?:mon|ma|mes|notre|l['’]|le|la|les|ce|cette)"
    r"(?: note sur| histoire d[e'’])? ?",
    r"(?:olv[ií]da(?:te)?|borra|elimina|ignora|descarta)(?: de| lo de| la nota (?:de|sobre))?"
    r" (?:el|la|los|las|mi|mis|lo|que)",
    r"(?:dimentica|cancella|ignora|scorda) (?:il|la|lo|le|i|gli|mio|mia|del|della)",
    r"(?:esque(?:ça|ce)|apag(?:a|ue)|ignor[ae]) (?:o|a|os|as|do|da|meu|minha)" + r"(?![^\W_])",
    r"(?:vergeet|negeer|schrap|verwijder) (?:maar )?(?:wat ik|de|het|mijn|dat)",
    r"忘[掉了]|不用记|别记|作废|不算数|撤回",
    r"(?:isn['\u2019]t|is not|wasn['\u2019]t|was not|is no longer) (?:true|right|correct|accurate)"
    r"(?: any ?more)?(?:,? (?:so |please )*(?:ignore|forget|drop|delete|disregard|scrap) (?:it"
    r"|that|this))?\W*$",
    r"stimmt (?:so )?nicht(?: mehr)?(?:,? (?:bitte )?vergiss (?:es|das))?\W*$",
    r"(?:n['\u2019]est (?:pas|plus) vrai|no es (?:verdad|cierto)|non è vero|não é verdade)\W*$",
    r"(?:不是真的|不对|不算了)\W*$",
    r"(?:ignore|forget|disregard|scrap) (?:it|that|this)\W*$",
    r"(?:you (?:can|may|should)|could you please|tu peux|vous pouvez|puedes|puede|puoi|podes|pode)"
    r" (?:please )?(?:forget|disregard|ignore|delete|drop|oublier|olvidar|ignorar|dimenticare"
    r"|esquecer)(?: that| about| que| che| de)?(?: what i said about)? ",
    r"(?:just |please )*(?:forget|delete|drop|scrap|erase|remove|ignore) (?:that|it|this)\W*$",
    r"(?:war|ist) (?:gelogen|falsch|erfunden|nicht wahr)(?:,? bitte vergessen)?\W*$",
    r"(?:bitte )?merk(?:e|t)? (?:dir|euch|sie sich) nicht,? (?:wo|was|wie|wer|dass|wann)?",
    r"(?:这件?事)?(?:你|请)?(?:忘了?|忘掉|忘记|删掉|删了)(?:吧|它)?\W*$",
    r"(?:i made up|i shouldn['\u2019]t have (?:told you|said|mentioned))(?: that"
    r"| the thing about| the"
    r" (?:bit|part) about)?",
)
"""A sentence that takes back what was said, and puts nothing in its place."""

_STORED = (
    r"[^.\n]{0,40}?(?:memor(?:y|ies)|records?|entr(?:y|ies)|notes?|facts?|labell?ed|stored"
    r"|erinnerung(?:en)?|einträge?|notiz(?:en)?|souvenirs?|mémoires?|recuerdos?|memorias?"
    r"|ricordi|memórias?)"
)
_ALL = (
    r"(?:the|all|every|each|any|my|his|her|their|our|your|what|whatever|this|that|these|those|it"
    r"|die"
    r"|den|das|alles?|jede[nsr]?|le|la|les|tou(?:t|te|s|tes)|el|los|las|tod[oa]s?|il|lo|gli"
    r"|tutt[oaie]"
    r"|[oa]s?)"
)
_BEGIN = r"(?:^|[.!?:;\n>}]\s*|(?:and|und|et|y|e) )"
INSTRUCTION = Phrase(
    "|".join(
        (
            # What a text says to whoever reads it with a model.
            r"\b(?:ignore|disregard|override|bypass)\b[^.\n]{0,30}\b(?:instructions?|rules?"
            r"|prompts?"
            r"|polic(?:y|ies)|guidelines?)\b",
            r"\b(?:new|following|hidden|system|updated) (?:instructions?|prompts?|directives?)\b",
            r"(?:^|\n)\W*(?:system|assistant|developer|operator)\s*:",
            r"\b(?:maintenance|developer|admin|debug|god|root) mode\b",
            r"\b(?:i|we) (?:hereby )?authori[sz]e you\b",
            r"\byou (?:must|shall|have to|are to|need to|are required to|will) "
            r"(?:now |always |also )?(?:delete|remove|replace|update|overwrite|erase|forget|merge"
            r"|store|change|set|mark|ignore|drop|rewrite|purge)\b",
            rf"{_BEGIN}(?:please )?(?:delete|remove|replace|overwrite|erase|merge|rewrite|purge"
            rf"|wipe|update|change|forget|drop) {_ALL}\b{_STORED}\b",
            rf"{_BEGIN}(?:please )?(?:replace|overwrite|rewrite) {_ALL}\b[^.\n]{{1,60}}?"
            r"(?: with\b| by\b|:)",
            r"\bignorier(?:e|en sie|t)?\b[^.\n]{0,30}\b(?:anweisungen|regeln)\b",
            r"\bneuen? anweisung(?:en)?\b",
            rf"{_BEGIN}(?:bitte )?(?:lösche?|ersetze?|überschreibe?|entferne?|vergiss) {_ALL}\b"
            rf"(?:{_STORED}\b|[^.\n]{{1,60}}? durch\b)",
            r"\bignore[rz]?\b[^.\n]{0,20}\bles\b[^.\n]{0,20}\b(?:instructions|consignes|règles)\b",
            r"\bnouvelles (?:instructions|consignes)\b",
            rf"{_BEGIN}(?:supprimez?|remplacez?|effacez?|écrasez?|oubliez?) {_ALL}\b"
            rf"(?:{_STORED}\b|[^.\n]{{1,60}}? par\b)",
            r"\bignor[ae]d?\b[^.\n]{0,20}\b(?:instrucciones|instruções|istruzioni|reglas|regras"
            r"|regole)\b",
            r"\b(?:nuevas instrucciones|novas instruções|nuove istruzioni)\b",
            rf"{_BEGIN}(?:borra|elimina|reemplaza|sobrescribe|olvida|cancella|sostituisci|apague"
            rf"|exclua"
            rf"|substitua) {_ALL}\b(?:{_STORED}\b|[^.\n]{{1,60}}? (?:por|con|com)\b)",
            r"(?:忽略|无视)[^。\n]{0,12}(?:指令|指示|规则|提示)",
            r"(?:删除|替换|覆盖|清除)[^。\n]{0,12}(?:记忆|记录|条目)",
        )
    ),
    re.IGNORECASE,
)
"""A text that tells a reader what to do with instructions or with what is stored: nothing is
replaced or withdrawn for it without a person.
"""

ENDED = phrases(
    rf"no longer{_END}",
    rf"(?:no more|dropped out|(?:was|were|been|got) (?:cancell?ed|called off|scrapped|revoked"
    rf"|withdrawn|terminated|discontinued|shelved)|fell through|called off){_END}",
    rf"(?:(?:is|are|was|were)(?: now)? (?:over|out of|back from|finished|history|done with)"
    rf"|(?:pull(?:ed)?|back(?:ed)?|dropped|drop) out(?: of)?|gone off|went off|done with"
    rf"|turns out [^.]{{0,60}}?not|not [^.]{{0,60}}? after all){_END}",
    rf"(?:schluss gemacht|(?:ist|sind) (?:vorbei|weg|beendet)|doch nicht){_END}",
    rf"not [^.]{{0,60}}?any ?(?:more|longer){_END}",
    rf"\w*n't [^.]{{0,60}}?any ?(?:more|longer){_END}",
    rf"(?:stopped|quit|gave up|gave away|got rid of|sold|cancell?ed|dropped|left|removed|abandoned"
    rf"|retired|decommissioned|deprecated|is gone|are gone|went on leave|shut down|dissolved"
    rf"|broke up|divorced|resigned|moved out|phased out){_END}",
    rf"nicht (?:mehr|länger){_END}",
    rf"kein(?:e|en|em|er)? [^.]{{0,60}}?mehr{_END}",
    rf"(?:aufgehört|gekündigt|verkauft|abgeschafft|aufgegeben|abgesagt){_END}",
    rf"(?:ne |n')[^.]{{0,60}}?plus{_END}",
    rf"(?:arrêtée?s?|vendue?s?|abandonnée?s?|annulée?s?|supprimée?s?|résiliée?s?|démissionné)"
    rf"{_END}",
    rf"(?:niet meer|geen [^.]{{0,60}}? meer|gestopt|opgezegd|afgelast){_END}",
    rf"ya no{_END}",
    rf"(?:dejé de|hemos dejado|vendí|abandonamos|cancelamos){_END}",
    rf"non [^.]{{0,60}}?più{_END}",
    rf"(?:smesso|venduto|cancellat[oa]|annullat[oa]){_END}",
    rf"(?:ha|he|hemos|han|fue|se) (?:cancelad[oa]|anulad[oa]|dejado|canceló|anuló){_END}",
    rf"(?:já não|não [^.]{{0,60}}? mais|deixei de|vendi){_END}",
    r"不再|已经不|停止|取消了|戒了|辞职|卖掉|卖了",
)
"""Something is so no longer."""

CHANGED = phrases(
    rf"(?:now|nowadays|from now on|as of|since|instead|changed|moved|switched|migrated|renamed"
    rf"|replaced"
    rf"|updated|relocated|postponed|rescheduled|became|recently|actually|correction|meanwhile"
    rf"|these days|ended up|went up|went down|raised|lowered|increased|reduced|doubled|halved"
    rf"|from (?:today|tomorrow|next \w+|january|february|march|april|may|june|july|august"
    rf"|september|october|november|december)(?: on)?|starting (?:today|tomorrow|next \w+|in \w+|on"
    rf" \w+)|pushed (?:back|forward|[^.]{{1,40}}? to)|bumped|took over|takes over|taken over"
    rf"|has grown on|have grown on|i misread|i was mistaken|i misspoke|my mistake"
    rf"|brought forward|handed over|passed on to){_END}",
    rf"(?:jetzt|nun|inzwischen|neuerdings|ab sofort|seit|stattdessen|umgezogen|gewechselt"
    rf"|verschoben"
    rf"|geändert|umgestellt|mittlerweile|doch|erhöht|gesenkt|gezogen){_END}",
    rf"(?:maintenant|désormais|dorénavant|depuis|déménagé|changé|remplacé|reporté|passé"
    rf"|augmenté){_END}",
    rf"(?:ahora|desde|en su lugar|me mudé|cambiado|cambiamos|cambié|reemplazado|aplazado|pasó a"
    rf"|actualmente){_END}",
    rf"(?:adesso|ora|d'ora in poi|trasferit[oa]|cambiato|spostat[oa]){_END}",
    rf"(?:agora|a partir de|mudei|mudou|trocamos|adiad[oa]){_END}",
    rf"(?:from here on|as of (?:now|today|this|next|\d)|slipped|deferred|delayed|extended"
    rf"|shortened|traded"
    rf"|swapped"
    rf"|turned into|taking over|no more|has been (?:set|moved|put|shifted|adjusted)|was (?:set"
    rf"|moved"
    rf"|put|shifted|adjusted) to|rose|fell|climbed|grew|shrank|dropped to|cut to|effective){_END}",
    rf"(?:ab jetzt|von nun an|künftig|ab (?:montag|dienstag|mittwoch|donnerstag|freitag|samstag"
    rf"|sonntag|januar|februar|märz|april|mai|juni|juli|august|september|oktober|november|dezember)"
    rf"|verlegt|vorverlegt|verlängert|gestiegen|gefallen|ersetzt|abgelöst|erhöht"
    rf"|aktualisiert){_END}",
    rf"(?:décalée?s?|avancée?s?|déplacée?s?|reportée?s?|est passée?|sont passée?s|a augmenté"
    rf"|a baissé|à partir de|remplacée?s?|prolongée?s?){_END}",
    rf"(?:se (?:pasó|movió|trasladó|cambió|aplazó|adelantó)|ha (?:subido|bajado|cambiado|pasado)"
    rf"|han"
    rf" (?:subido|bajado|cambiado)|subió a|bajó a|trasladad[oa]|aplazad[oa]|adelantad[oa]){_END}",
    rf"(?:è stat[oa] (?:spostat[oa]|cambiat[oa]|rinviat[oa]|anticipat[oa])|è (?:salit[oa]|sces[oa]"
    rf"|passat[oa])|rinviat[oa]|d'ora in avanti){_END}",
    rf"(?:passou (?:a|para)|foi (?:adiad[oa]|alterad[oa]|mudad[oa])|subiu para|desceu para"
    rf"|a partir d[aeo]){_END}",
    rf"(?:nu|voortaan|verplaatst|verschoven|gewijzigd|vanaf|verhoogd|verlaagd){_END}",
    r"现在|改为|改成|改到|搬到|搬去|从此|换成|换了|推迟到|提前到|涨到|降到|变成|调到",
)
"""Something is so now, and was not before."""

NEW = Phrase(
    r"(?:\b(?:new|neue[rsnm]?|nouve(?:au|l|lle)s?|nuev[oa]s?|nuov[oaie]|nov[oa]s?|nieuwe?) |新的?)"
    r"(?P<things>(?:[^\W_]|-)+(?: [^\W\d_]+)?)",
    re.IGNORECASE,
)
"""There is another one of a thing. It changes what is known of that thing, and nothing else: a new
saddle is no change of where the bike is.
"""

NEGATED = phrases(
    rf"(?:not|never|no|none|nobody|nothing|cannot|without){_END}",
    r"(?:do|does|did|is|are|was|were|ca|wo|should|must|have|has|had|could|would)n['\u2019]t",
    rf"(?:nicht|nie|niemals|kein(?:e|en|em|er|es)?|nichts|ohne){_END}",
    rf"(?:ne|pas|jamais|aucune?|rien|sans){_END}",
    r"n['\u2019](?=\w)",
    rf"(?:no|nunca|jamás|ningun[oa]?|nada|sin|tampoco){_END}",
    rf"(?:non|mai|nessun[oa]?|niente|senza){_END}",
    rf"(?:não|nunca|jamais|nenhum[a]?|sem){_END}",
    r"不|没有|没|从不|别|未",
)
"""Words that turn a statement around."""

_LEADS = r"(?:please|just|simply|first|always|then|and|you|also|finally|next),? "
_DO = (
    r"(?:add|apply|ask|attach|boil|book|build|bump|call|check|choose|clean|clear|click|close"
    r"|commit|configure|connect|contact|copy|create|cut|delete|deploy|disable|download|drag|drain"
    r"|edit|email|empty|enable|enter|execute|export|fill|follow|format|generate|get|give|go|hold"
    r"|import|inform|insert|install|keep|kill|launch|leave|let|load|log|lower|make|merge|mix|mount"
    r"|move|notify|open|paste|pick|ping|plug|post|pour|press|print|pull|push|put|read|reboot|rebase"
    r"|rebuild|record|reload|remove|rename|repeat|replace|report|reset|restart|restore|return"
    r"|review|revert|rotate|run|save|scan|schedule|scroll|select|send|set|shut|sign|start|stir"
    r"|stop|submit|switch|sync|tag|take|tap|tell|test|tick|toggle|turn|type|uncheck|uninstall"
    r"|unplug|unzip|update|upgrade|upload|use|verify|wait|wash|wipe|write)"
)
"""Verbs that instructions begin with, as far as they are imperatives there."""

DECISION = phrases(
    r"(?:we|i|they|the team|[a-z]+ and i|everyone|the board)(?:'ve| have| has)?(?: all| finally"
    r"| now"
    r"| just| both| jointly)* (?:decided|agreed|chose|chosen|settled on|opted|picked|selected"
    r"|concluded"
    r"|voted|committed to|resolved)",
    r"(?:it was|has been|was|is) (?:decided|agreed|resolved)",
    r"decision\s*:",
    r"the decision (?:is|was)",
    r"(?:we(?:'re| are)|i(?:'m| am)) (?:going with|going to go with|switching to|moving to"
    r"|sticking with"
    r"|migrating to|standardi[sz]ing on|adopting)",
    r"(?:we(?:'ll| will)) (?:use|go with|adopt|stick with|migrate|switch|ship|drop|support)",
    r"let'?s (?:go with|use|stick with|adopt)",
    r"(?:wir|ich|das team) (?:haben?|habe|hat)(?: uns| mich| sich)?[^.]{0,80}?(?:entschieden"
    r"|beschlossen"
    r"|geeinigt|ausgewählt|festgelegt)",
    r"(?:haben|habe) wir(?: uns)?[^.]{0,80}?(?:entschieden|beschlossen|geeinigt)",
    r"(?:entscheidung|beschluss)\s*:",
    r"(?:es wurde|wurde) [^.]{0,60}?(?:beschlossen|entschieden)",
    r"(?:nous avons|on a|j'ai|l'équipe a)[^.]{0,20}? (?:décidé|choisi|opté|convenu|retenu)",
    r"décision\s*:",
    r"(?:hemos|he|el equipo ha|se ha) (?:decidido|acordado|elegido|optado)",
    r"(?:decidimos|acordamos|elegimos|optamos|decidí|elegí)",
    r"decisión\s*:",
    r"(?:abbiamo|ho|il team ha) (?:deciso|scelto|optato|concordato)",
    r"decisione\s*:",
    r"(?:decidi(?:mos)?|escolhemos|optámos|optamos|concordamos|ficou decidido)",
    r"decisão\s*:",
    r"(?:我们|我|团队)(?:已经?|最终)?(?:决定|选择了?|同意)|决定\s*[:：]",
    # The verb of deciding in any person, and the ways minutes and chats word an outcome.
    r"(?:decided (?:to|on|that|against|not to)|agreed (?:to|on|that)|settled (?:on|for|that)"
    r"|opted (?:for|to|against)|landed on|went with|ruled out|signed off on|voted (?:to|for|against"
    r"|in favou?r)|made up (?:my|our|his|her|their) minds?|(?:is|was|are|were|has been|have been)"
    r" (?:approved|adopted|rejected|turned down|green-?lit|given the green light)"
    r"|(?:approved|rejected|turned down|adopted|vetoed) (?:the|a|an|our|his|her|their)\b|final"
    r" (?:call|decision|answer|word|verdict)|(?:it|that|this)(?:['’]s| is) (?:settled|decided"
    r"|final|official)|in the end,? (?:i|we|he|she|they) (?:picked|took|chose|kept|bought|booked"
    r"|stayed|hired))" + _END,
    r"^(?:resolved|agreed|decided|approved|outcome|verdict|conclusion|consensus"
    r"|adr[ -]?\d+)\b ?[:,]?"
    r" (?!with\b|by\b)",
    r"^(?:the|our) plan is (?:now )?to",
    r"^(?:going forward|from now on|henceforth),? ",
    r"we(?:['’]ll| will| are going to| won['’]t| will not| are not going to"
    r"|['’]re not going to|['’]re going to) (?!see|talk|let|check|think|look|get back"
    r"|discuss|meet|try|find out|need|have to|know|have\b|be (?:there|back|late|fine|ok|able))",
    r"(?:wir|ich) (?:nehmen?|setzen? (?:künftig|ab jetzt|ab sofort|jetzt)|bleiben? bei|werden?"
    r" (?:künftig|ab jetzt|ab sofort|nicht)|verzichten?|entscheiden? uns|steigen? auf)" + _END,
    r"(?:es bleibt (?:beim?|dabei)|beschlossen (?:wurde|ist)|steht fest|(?:wurde|wurden|ist|sind)"
    r" (?:genehmigt|abgelehnt|verabschiedet|beschlossen)|am ende (?:haben|habe|wurde)"
    r"|wir einigten uns"
    r"|einigten sich|entschied(?:en)? (?:sich|wir|ich|uns))" + _END,
    r"(?:on part sur|c['’]est décidé|nous allons|on va (?:utiliser|prendre|garder|passer)"
    r"|finalement,? (?:on|nous|j)|(?:a été|ont été|est|sont) (?:décidée?s?|retenue?s?|approuvée?s?"
    r"|adoptée?s?|rejetée?s?)|on (?:garde|abandonne|retient))" + _END,
    r"(?:al final (?:nos|me|hemos|he|se)|vamos a (?:usar|utilizar|pasar|dejar|cambiar|lanzar"
    r"|adoptar)"
    r"|nos quedamos con|queda(?:mos)? (?:decidido|acordado|en que)|se (?:decidió|acordó|aprobó"
    r"|rechazó|descartó)|(?:hemos|han) (?:aprobado|descartado|rechazado))" + _END,
    r"(?:alla fine (?:abbiamo|ho|si)|si è deciso|è stato (?:deciso|approvato)|useremo|resta deciso"
    r"|abbiamo (?:scartato|approvato))" + _END,
    r"(?:vamos (?:usar|utilizar|adotar|mudar|ficar com)|no final (?:ficámos|ficamos|escolhi)"
    r"|ficámos com|foi (?:decidido|aprovado|rejeitado)|decidiu-se)" + _END,
    r"(?:we|ik) (?:hebben|heb) (?:besloten|gekozen)|(?:is|was|er is) besloten|besluit\s*:",
    r"最[后终](?:我们|我)?(?:选|决定|采用|定)|(?:会议|大家|团队|公司|领导|董事会|老板)[一-龥]{0,4}"
    r"(?:决定|同意|批准|通过)|就这么定|定下来|敲定|决定(?:用|采用|推迟|取消|改|不)",
)

PREFERENCE = phrases(
    r"(?:i|we|he|she|they|[a-z]+)(?: really| also| always| still| absolutely| do| both| now"
    r"| actually"
    r"| truly| generally| usually| would| no longer| never| don'?t| doesn'?t| do not| does not"
    r"| much"
    r"| can'?t help but| has always| have always)*(?:'d)? (?:like[sd]?(?! to know| you to|ly)"
    r"|loves?|loved"
    r"|prefers?|preferred|enjoys?|adores?|hates?|dislikes?|despises?|fancies|favou?rs?"
    r"|can'?t stand|cannot stand"
    r"|rather)" + _END,
    r"(?:my|our|his|her|their|[a-z]+'s)(?: all-time| absolute)? (?:favou?rites?|preferred"
    r"|preference)",
    r"(?:i(?:'m| am)|he is|she is|[a-z]+ is)(?: not| really)? (?:a (?:big |huge )?fan of|fond of"
    r"|keen on"
    r"|into|crazy about|sick of|tired of)",
    r"(?:ich|wir|er|sie|[a-zäöü]+) (?:mag|mögen|liebe|lieben|liebt|bevorzuge|bevorzugen|bevorzugt"
    r"|hasse"
    r"|hasst|hassen|genieße|verabscheue)" + _END,
    r"(?:mag|liebe|hasse|bevorzuge) ich",
    r"(?:mein|meine|unsere?|ihre?|seine?)(?:e|en)? lieblings\w+",
    r"(?:am liebsten|lieber als|ziehe [^.]{0,60}? vor|gefällt mir|gefallen mir)",
    r"j['\u2019](?:aime|adore|apprécie)",
    r"je (?:n['\u2019]aime|préfère|déteste|ne supporte)",
    r"(?:il|elle|on|nous|[a-zéè]+) (?:aime|aimons|adore|préfère|préférons|déteste)",
    r"(?:mon|ma|notre|sa|son) [^.,]{2,30}? (?:préférée?|favorite?)",
    r"(?:me|nos|le|les)(?: no)? (?:gustan?|encantan?|fascina)",
    r"no me gustan?",
    r"(?:prefiero|preferimos|prefiere|odio|odia|detesto|adoro)",
    r"(?:mi|nuestr[oa]|su) [^.,]{2,30}? (?:favorit[oa]|preferid[oa])",
    r"(?:mi|ci|gli|le) (?:piace|piacciono)",
    r"(?:preferisco|preferisce|preferiamo|detesto|amo|odio)",
    r"(?:il mio|la mia) [^.,]{2,30}? (?:preferit[oa])",
    r"(?:gosto|gosta|gostamos|prefiro|prefere|preferimos|detesto|adoro|odeio)",
    r"(?:o meu|a minha|meu|minha) [^.,]{2,30}? (?:favorit[oa]|preferid[oa])",
    r"(?:我|他|她|我们)(?:很|非常|最|更|不|不太|都)*(?:喜欢|爱|讨厌|偏好|偏爱|更喜欢)",
    r"我最喜欢的",
    # A liking worded without a verb of liking.
    r"(?:nothing beats|can['’]?t get enough of|go-to\b|soft spot for|partial to|not (?:really )?"
    r"(?:big|hot|sold) on|big on|leans? towards?|(?:tends?|try|tries) to (?:avoid|choose|go for"
    r"|pick|prefer|steer clear)|could live on|suits? (?:me|us|him|her)|(?:works?|is|are) (?:best"
    r"|better|easier|easiest) for (?:me|us|him|her)|swears? by|obsessed with|addicted to"
    r"|passionate about|appeals? to (?:me|us)|put off by|drives? me|annoys? me|bothers? me"
    r"|gets? on my nerves|(?:can['’]?t|cannot) (?:bear|stomach)|loathes?|detests?|happiest when"
    r"|(?:am|'m|is|'s) (?:really )?not into|over .{2,30} any day|preference (?:is|for|goes)"
    r"|(?:not|isn['’]t|aren['’]t)(?: really| exactly| quite)? (?:my|our|his|her|their)"
    r" (?:thing|cup of tea|style|taste|jam|idea of)|(?:don['’]?t|doesn['’]?t) (?:really )?"
    r"(?:care for|enjoy|like))" + _END,
    r"(?:much |far |would |'d )(?:sooner|rather) .{2,80} than" + _END,
    r"more of an? .{2,30}?(?:person|guy|girl|type|fan|lover|drinker|eater|reader)" + _END,
    r"(?:i|we|he|she|they)(?: do| really| just)* like .{2,60} (?:best|better|more)" + _END,
    r"(?:steh(?:e|t|en)? [^.]{0,20}?auf|nicht (?:so |gerade |wirklich )?(?:mein|unser|sein"
    r"|ihr)(?:e|s)?"
    r" (?:ding|fall|geschmack|welt)|find(?:e|et|en) [^.]{2,50}? (?:besser|angenehmer|schöner|toll"
    r"|super|schrecklich|furchtbar|nervig|langweilig|am besten|lästig)|gefällt|gefallen|schmeckt"
    r"|schmecken|lieber|am liebsten|lieblings\w+|bin [^.]{0,20}?fan|nicht (?:leiden|ausstehen|ab)"
    r"|zieh(?:e|t|en) [^.]{2,50}? vor|halte nichts von|genieße[nt]?|graut mir)" + _END,
    r"(?:fan d[e'’]|très peu pour moi|(?:ne|n['’])\s?(?:j['’])?aime(?:nt|s|ns|ons)?"
    r" (?:pas|guère|plus|vraiment)|(?:me|nous|lui) pla(?:ît|isent)|raffole|ai horreur|passionnée?s?"
    r" (?:de|par)|pas (?:mon|notre|son) truc|plutôt .{2,40} que|aimerais? mieux)",
    r"(?:soy (?:más |muy )?de (?!aquí)[^.]{2,40}? que|no (?:soporto|aguanto)|me (?:chifla|apasiona"
    r"|molestan?|flipa|agradan?|fascinan?)|aficionad[oa]|fan de|no es lo mío|no me va)" + _END,
    r"(?:appassionat[oa] di|non sopport[oa]|fan di|non fa per me|vado matt[oa]|preferenza per)"
    + _END,
    r"(?:preferência por|não suporto|fã de|não é a minha praia|gosto (?:mais|muito|imenso))" + _END,
    r"(?:ik|wij|we|hij|zij) (?:hou|houd|houdt|houden) (?:erg |niet )?van|(?:vind|vindt) [^.]{2,40}?"
    r" (?:leuk|lekker|fijn|prettig|vervelend)|voorkeur voor|hekel aan|(?:heb"
    r"|heeft) [^.]{0,20}?liever",
    r"(?:比较|更|最|很|特别|超|不太?|挺)(?:喜欢|爱)|不爱[吃喝看听玩]|受不了|宁愿|宁可|情愿|偏爱|偏好"
    r"|好き|嫌い|気に入|お気に入り|方がいい",
)

CONSTRAINT = phrases(
    r"(?:must|has to|have to|needs? to)(?: not| never| always| be| only)? (?!go now|run now|leave"
    r"|admit|say"
    r"|catch|head|ask|tell you)",
    r"(?:is|are) (?:required|mandatory|forbidden|prohibited|not allowed|not permitted|off limits"
    r"|limited to|capped at|restricted to)",
    r"(?:never|always) (?:use|run|deploy|commit|push|merge|write|ask|include|send|share|call"
    r"|store|log"
    r"|delete|add|put|keep|start|answer|reply|test|review|sign|validate|check|eat|drink|open"
    r"|change)",
    r"^(?:do not|don'?t|never|always|only|under no circumstances|make sure|ensure) ",
    r"(?:may|can|should|shall) (?:not|never|only)",
    r"(?:cannot|can'?t) (?:exceed|be|eat|drink|have|use|take|tolerate|go (?:over|above|below))",
    r"(?:at most|at least|no more than|no less than|not more than|maximum of|minimum of"
    r"|up to a maximum)",
    r"(?:i(?:'m| am)|he is|she is|[a-z]+ is) allergic to",
    r"(?:muss|müssen|darf nicht|dürfen (?:nicht|nur)|darf nur|darf niemals|soll(?:en)? (?:nie"
    r"|nicht|immer))",
    r"(?:niemals|immer nur|auf keinen fall|höchstens|mindestens|maximal|verboten|ist pflicht"
    r"|vorgeschrieben|nicht erlaubt|allergisch gegen|vertrage kein\w*)",
    r"^(?:nie|niemals|immer) ",
    r"(?:doit|doivent|devez|devons|il faut|ne (?:doit|doivent|peut|peuvent|jamais)"
    r"|n['\u2019]est pas permis)",
    r"(?:interdit|obligatoire|au maximum|au plus|au moins|allergique)",
    r"^(?:ne|toujours|jamais) ",
    r"(?:debe(?:n|mos)?|hay que|tiene(?:n)? que|no se (?:puede|debe|permite)|prohibid[oa]"
    r"|obligatori[oa]"
    r"|como máximo|como mínimo|al menos|a más tardar|alérgic[oa])",
    r"^(?:nunca|siempre) ",
    r"(?:dev(?:e|ono)|bisogna|non si (?:può|deve)|vietato|obbligatori[oa]|al massimo|almeno"
    r"|allergic[oa])",
    r"^(?:mai|sempre) |^non [^\W\d]+[aei]re(?![^\W_])",
    r"(?:deve(?:m|mos)?|é proibido|obrigatóri[oa]|no máximo|pelo menos|não (?:se pode|pode)"
    r"|alérgic[oa])",
    r"(?:必须|禁止|不得|不能|不要|最多|至少|务必|过敏|不允许)",
    # A modal or a participle that allows or forbids, in any person and order.
    r"(?:mustn['’]t|may not|(?:is|are|was|were)(?:n['’]t| not| only| never)? (?:to be )?"
    r"(?:allowed|permitted|admitted|forbidden|prohibited|banned|compulsory|mandatory|off-limits)"
    r"|(?:has|have|had) (?:got )?to be|need(?:s)? (?:to be |prior |written |at least |\w+ )?"
    r"(?:approvals?|sign-off|permission|authori[sz]ation)|requires? (?:a|an|two|three|written|prior"
    r"|approval|permission|at least|\d+)|no (?:more|longer|later|less|fewer|earlier|other) than"
    r"|under no circumstances|without exception|strictly|limited to|not exceed|must be|must not"
    r"|can['’]?t (?:eat|drink|have|tolerate|digest)|allerg(?:y|ic|ies)|intoleran(?:t|ce)|coeliac)"
    + _END,
    r"^(?:no [a-z]+ (?:on|in|at|after|before|during|without|allowed|for|over|under|from)"
    r"|keep [^.]{2,40}?"
    r" (?:under|below|within|above|secret|private|out of)|don['’]t ever|nobody|no one|never"
    r"|avoid|refrain from|at no point)" + _END,
    r"(?:nobody|no one|no \w+|only \w+)(?: \w+){0,4} (?:may|can|is allowed|are allowed|should|has"
    r" access|is admitted)" + _END,
    r"(?:dürfen|darf|untersagt|gestattet|unzulässig|spätestens|zwingend|ausschließlich|muss|müssen"
    r"|vertrag(?:e|en|t) (?:kein\w*|es nicht|das nicht|sie nicht)|unverträglichkeit|allergie"
    r"|allergisch"
    r"|nie mehr als|nicht überschreiten|hat zu erfolgen)" + _END,
    r"(?:(?:ne|n['’])\s?\w* ?(?:doit|doivent|peut|peuvent|faut) (?:pas|jamais|plus|que)|on ne"
    r" doit|défense de|il est (?:interdit|obligatoire|impératif|défendu)|au plus tard"
    r"|jamais plus de"
    r"|uniquement|exclusivement|(?:doit|doivent) être|intolérante?)" + _END,
    r"(?:no se permite|no est(?:á|án) permitid[oa]s?|sólo se puede|solo se puede|tienen? que"
    r"|alergia"
    r"|intolerante|únicamente|no (?:debe|deben|puede|pueden) |queda prohibido|no más de)",
    r"(?:non è (?:permesso|consentito|ammesso)|entro e non oltre|non (?:deve|devono|può|possono)"
    r"|intollerante|allergia|al più tardi)" + _END,
    r"(?:não é permitid[oa]|proibid[oa]|t[êe]m? (?:que|de) (?:ser|estar)|não (?:deve|devem|podem)"
    r"|alergia|intolerante|o mais tardar)" + _END,
    r"(?:mag|mogen) (?:niet|geen|alleen|nooit)|(?:moet|moeten) "
    + r"|verboden te|verplicht|uiterlijk",
    r"不得|禁止|严禁|不准|不可以|只能|仅限|不超过|不能超过|必须|务必|不许|てはいけ|なければなりません|禁止",
)

PROCEDURE = phrases(
    r"^to [a-z][^.]{2,80}?, (?:first |simply |just |please |you )?(?:run|open|go|click|use|set"
    r"|add|call"
    r"|install|create|start|press|type|execute|edit|copy|check|ask|send|log|stop|restart|export"
    r"|select)",
    r"(?:first|start by|begin by)[ ,][^.]{3,160}?(?:then|next|after that|finally|afterwards"
    r"|and then)",
    r"^(?:steps?|procedure|how to|runbook|instructions|recipe)\b[^.]{0,60}?:",
    r"^(?:step )?1[.)] .+\b2[.)] ",
    r"(?:the (?:process|procedure|way|steps?) (?:to|for) [^.]{2,80}? (?:is|are|:))",
    r"^(?:after|before|when|whenever) [^.,]{3,80}?, (?:always )?(?:run|open|click|restart|clear"
    r"|call|set"
    r"|rebuild|update|check|tag|notify|execute|apply)",
    r"^um [^.]{3,100}? zu [^.,]{2,40}?,",
    r"(?:zuerst|zunächst|erst) [^.]{3,160}?(?:dann|danach|anschließend)",
    r"^(?:schritte?|anleitung|vorgehen)\b[^.]{0,60}?:",
    r"^pour [^.,]{3,100}?, (?:il faut|on|exécute[rz]?|lance[rz]?|ouvr\w+|clique[rz]?|d'abord"
    r"|faites|utilise[rz]?)",
    r"(?:d'abord|premièrement) [^.]{3,160}?(?:puis|ensuite|enfin)",
    r"^(?:étapes?|procédure)\b[^.]{0,60}?:",
    r"^para [^.,]{3,100}?, (?:primero|hay que|ejecuta|abre|usa|haz|se|pulsa|instala)",
    r"(?:primero|en primer lugar) [^.]{3,160}?(?:luego|después|entonces|y por último)",
    r"^(?:pasos?|procedimiento)\b[^.]{0,60}?:",
    r"^per [^.,]{3,100}?, (?:prima|esegui|apri|usa|bisogna)",
    r"(?:prima|per prima cosa) [^.]{3,160}?(?:poi|dopo|infine)",
    r"(?:primeiro) [^.]{3,160}?(?:depois|em seguida|por fim)",
    r"先.{2,80}(?:再|然后|接着)|步骤\s*[:：]",
    # A purpose or a condition, and then an imperative; or imperatives in a row.
    rf"^(?:in order )?to [a-z]+ [^.]{{0,80}}?, (?:{_LEADS})?{_DO}" + _END,
    rf"^(?:if|when|whenever|once|after|before|as soon as|should"
    rf"|in case) [^.,]{{3,90}}, (?:{_LEADS})?{_DO}" + _END,
    rf"^{_DO} [^.]{{3,90}}?(?:,| and| then)+ (?:{_LEADS})?{_DO}" + _END,
    rf"^{_DO} [^.]{{3,90}} (?:before|after|once|when|whenever) (?:you|the|each|every|any|\w+ing)"
    + _END,
    r"(?:you|we) [a-z]+ [^.]{0,60}?by [a-z]+ing .{3,90}(?:,| and| then) [a-z]+ing",
    r"(?:here['’]?s how|this is how|works like this|the steps are|goes like this)" + _END,
    r"^(?:start|begin|commence) (?:with|by) .{3,160}?(?:,| then| and)",
    r"^(?:zum|zur|für) [^.,]{3,60}? (?:zuerst|zunächst|erst|bitte|einfach)|so geht(?:['’]?s| es)",
    r"^(?:wenn|falls|sobald|nachdem|bevor|nach|vor) [^.,]{3,90}, (?:bitte )?(?:starte?|öffne"
    r"|klicke?"
    r"|führe|lösche?|prüfe?|drücke?|rufe?|setze?|melde|schalte|trenne|warte|ziehe?|gib|wähle?"
    r"|installiere|dann)" + _END,
    r"^pour [^.,]{3,100}, (?!je\b|nous\b|j['’])[^\W\d]+(?:ez|er|s|e|is)" + _END,
    r"^(?:commence[rz]?|d['’]abord|ouvrez|si [^,]{3,60}, (?:redémarrez|relancez|appelez|ouvrez"
    r"|appuyez)).{3,160}?(?:,|puis|ensuite|$)",
    r"^(?:para|si|cuando) [^.,]{3,100}, (?!yo\b|me\b|mi\b|el\b|la\b|los\b|las\b|un|nos\b|no\b|se\b)"
    r"[^\W\d]+(?:a|e|én|ga|ja|za|é)" + _END,
    r"(?:primero|primeiro) .{3,160}?(?:después|luego|depois|por fin|por último|y entonces)",
    r"^per [^.,]{3,100}, (?!io\b|il\b|la\b|mi\b|ci\b|non\b|noi\b)[^\W\d]+(?:a|i)" + _END,
    r"^要.{2,30}[，,].{0,4}(?:先|请|点击|打开|按)|先.{2,80}(?:最后|，再|，然后)|首先.{2,80}",
)

FACT = phrases(
    r"(?:i|we)(?:'ve| have)?(?: now| currently| both| just| recently| also| always| no longer"
    r"| don'?t| do not"
    r"| never| actually| already| still)* (?:lives?|lived|works?|worked|moved|owns?|owned|study"
    r"|studied|speak|drive"
    r"|grew up|joined|started|bought|adopted|married|graduated|run|host|use|used|quit|left|sold"
    r"|manage|lead"
    r"|teach|play|sing|train|relocated|switched|migrated|have (?:a|an|two|three|four|five|no|many"
    r"|\d+)"
    r"|own|got (?:a|an|married|engaged|promoted)|was born|were born|had (?:a|an)|eat|drink|wake"
    r"|deploy|ship"
    r"|store|keep|don'?t (?:have|own|eat|drink|use))" + _END,
    r"(?:i(?:'m| am)|we(?:'re| are))(?: now| currently| still| no longer| not)* (?:an? (?!bit"
    r"|little|fan|moment"
    r"|couple|lot)|the |from |based|vegan|vegetarian|married|single|divorced|engaged|left-handed"
    r"|retired"
    r"|responsible for|in charge of|\d+|working (?:at|for|as|on)|living|learning|located|called"
    r"|named)",
    r"(?:my|our|his|her|their|[a-z]+'s) [^.,?]{2,60}? (?:is|are|was|were|has|have|lives?|works?"
    r"|runs?|uses?"
    r"|turned|turns|starts?|ends?|costs?|moved|changed|becomes?|became|expires?|needs|died|got)"
    + _END,
    r"^(?:the|this|each|every|all|our|its) [^.,?]{2,70}? (?:is|are|was|were|has|have|runs?|uses?"
    r"|lives?|costs?|starts?"
    r"|ends?|depends?|belongs?|contains?|listens?|supports?|returns?|stores?|takes?|expires?"
    r"|moved|changed"
    r"|requires?|opens?|closes?|holds?|weighs?|lasts?|went|points?|handles?|sends?|writes?|reads?)"
    + _END,
    r"^(?-i:[A-Z])[\w.-]*(?: (?-i:[A-Z])[\w.-]*| \d[\w.]*)* (?:(?:now|also|currently|still"
    r"|already|usually|no longer)"
    r" )*(?:is|are|was|were|works?|worked|lives?|lived|owns?|has|have|uses?|runs?|manages?|leads?"
    r"|moved"
    r"|joined|founded|wrote|speaks?|plays?|studies|studied|teaches|depends? on|reports to"
    r"|maintains?"
    r"|supports?|belongs|costs?|starts?|ends?|listens|requires?|married|bought|sold|left|stores?"
    r"|acquired)" + _END,
    r"(?:ich|wir|er|sie) (?:wohne[nt]?|wohnt|lebe[nt]?|lebt|arbeite[nt]?|arbeitet|heiße|heißt|bin"
    r"|sind|ist|habe[n]?|hat"
    r"|besitze[nt]?|studiere[nt]?|spreche[n]?|spiele[n]?|fahre[n]?|nutze[n]?|verwende[n]?"
    r"|lerne[n]?|esse[n]?"
    r"|trinke[n]?|ziehe|unterrichte)" + _END,
    r"(?:bin|habe|wohne|arbeite|lebe) ich",
    r"(?:mein|meine|unser|unsere|sein|seine|ihr|ihre)(?:e|em|en|er|es)? [^.,?]{2,60}? (?:ist|sind"
    r"|war|heißt|heißen|hat"
    r"|wohnt|lebt|arbeitet|liegt|beginnt|endet|kostet|lautet|läuft)" + _END,
    r"^(?:der|die|das|dieser|diese|dieses|jeder|jede|jedes) [^.,?]{2,70}? (?:ist|sind|war|hat"
    r"|haben|läuft|laufen|liegt|beginnt"
    r"|endet|kostet|lautet|nutzt|verwendet|gehört|enthält|unterstützt|speichert|dauert|beträgt"
    r"|wurde|hängt)" + _END,
    r"^(?-i:[A-ZÄÖÜ])[\w.-]*(?: (?-i:[A-ZÄÖÜ])[\w.-]*)* (?:wohnt|lebt|arbeitet|heißt|besitzt"
    r"|leitet|nutzt|verwendet|hat|ist|läuft|gehört"
    r"|studiert|spricht|spielt|hängt)" + _END,
    r"(?:j['\u2019](?:habite|ai (?:un|une|deux|trois|\d+|déménagé|acheté|étudié|travaillé)"
    r"|utilise|étudie|enseigne)"
    r"|je (?:suis|m'appelle|vis|travaille|parle|joue|possède|mange|bois|n['\u2019]habite"
    r"|ne (?:mange|bois)))",
    r"(?:nous (?:utilisons|habitons|avons|travaillons|vivons|sommes)|on utilise)",
    r"(?:mon|ma|mes|notre|nos|son|sa|ses|leur) [^.,?]{2,60}? (?:est|sont|s'appelle|s'appellent|a"
    r"|habite|travaille"
    r"|vit|commence|finit|coûte|était)" + _END,
    r"^(?:le|la|les|l['\u2019]|ce|cette|chaque) ?[^.,?]{2,70}? (?:est|sont|a|ont|utilise|tourne"
    r"|coûte|commence|finit|dépend"
    r"|contient|appartient|dure|écoute|était|stocke)" + _END,
    r"^(?-i:[A-ZÉ])[\w.-]*(?: (?-i:[A-ZÉ])[\w.-]*)* (?:habite|vit|travaille|est|utilise|dirige"
    r"|possède|étudie|parle|dépend)" + _END,
    r"(?:yo )?(?:vivo|trabajo|soy|estudio|tengo|uso|hablo|nací|me llamo|me mudé|juego|conduzco"
    r"|como|bebo|enseño) ",
    r"(?:vivimos|trabajamos|usamos|tenemos|somos|utilizamos)",
    r"(?:mi|mis|nuestr[oa]s?|su|sus) [^.,?]{2,60}? (?:es|son|está|están|se llama|se llaman|tiene"
    r"|vive|trabaja|empieza"
    r"|termina|cuesta|era)" + _END,
    r"^(?:el|la|los|las|este|esta|cada) [^.,?]{2,70}? (?:es|son|está|están|tiene|tienen|usa"
    r"|utiliza|corre|cuesta|empieza"
    r"|termina|depende|contiene|pertenece|dura|escucha|era|guarda)" + _END,
    r"^(?-i:[A-ZÁÉÍÓÚ])[\w.-]*(?: (?-i:[A-ZÁÉÍÓÚ])[\w.-]*)* (?:vive|trabaja|es|usa|dirige|tiene"
    r"|estudia|habla|depende)" + _END,
    r"(?:vivo|lavoro|sono|ho (?:un|una|due|tre|\d+)|mi chiamo|studio|parlo|uso|abito|usiamo) ",
    r"(?:il mio|la mia|i miei|le mie|il nostro|la nostra) [^.,?]{2,60}? (?:è|sono|si chiama|vive"
    r"|lavora|ha)" + _END,
    r"^(?:il|lo|la|i|gli|le|l['\u2019]) ?[^.,?]{2,70}? (?:è|sono|usa|costa|inizia|finisce|dipende"
    r"|contiene|dura)" + _END,
    r"(?:moro|trabalho|sou|tenho|estudo|falo|chamo-me|me chamo|uso|usamos|vivo) ",
    r"(?:o meu|a minha|meu|minha|nosso|nossa) [^.,?]{2,60}? (?:é|são|chama-se|se chama|vive"
    r"|trabalha|tem)" + _END,
    r"^(?:o|a|os|as) [^.,?]{2,70}? (?:é|são|usa|custa|começa|termina|depende|contém|dura)" + _END,
    r"(?:我|我们|他|她)(?:现在|目前|已经|不再)?(?:住在|在.{1,20}工作|是|有|没有|养了?|搬到|使用|用|会说|叫|来自)",
    r"我的.{1,20}(?:是|叫|在)|^.{2,20}(?:位于|属于|依赖|运行在)",
)

_NO_NAMES = (
    "i a the an my our your his her its their this that these those we you he she it they there "
    "here if when where what who why how which do does did is are was were am be been can could "
    "will would should shall may might must have has had no not yes and or but so then also "
    "never always only at in on to for from with by please thanks hello hi first next finally "
    "after before since until while during today tomorrow yesterday monday tuesday wednesday "
    "thursday friday saturday sunday january february march april may june july august "
    "september october november december remember note forget actually let make use run "
    "decision steps every each all some most many ok okay now as of about into over under ich "
    "du er sie es wir ihr der die das den dem ein eine einen mein meine unser unsere und oder "
    "aber nicht nie immer heute morgen gestern zuerst dann wenn um zu bitte in am im auf mit "
    "von je tu il elle nous vous ils elles le la les un une des mon ma mes notre et ou mais ne "
    "pas jamais toujours pour el los las una mi mis nuestro nuestra y o pero nunca siempre para "
    "no yo lo gli il per non mai sempre o os as meu minha nosso montag dienstag mittwoch "
    "donnerstag freitag samstag sonntag lundi mardi mercredi jeudi vendredi samedi dimanche "
    "lunes martes miércoles jueves viernes sábado domingo api url id todo fixme faq usa etc ceo "
    "cto pdf csv json html xml sql http https utc am pm everyone someone nobody "
)
NO_NAMES = frozenset(_NO_NAMES.split())
"""Words with a capital that name nobody, in lower case."""

_FILLER = (
    "now currently actually still really just also longer anymore any more since recently new "
    "instead always very much so well even ever today nowadays jetzt nun nicht mehr nicht kein "
    "keine keinen auch noch sehr wirklich immer seit inzwischen plus ne pas maintenant toujours "
    "encore depuis très ya no ahora todavía siempre muy también actualmente non più adesso ora "
    "ancora não mais agora ainda dont don't doesnt doesn't isn't not no never stop stopped used "
    "correction update user "
)
FILLER = frozenset(_FILLER.split())
"""Words of a sentence that say when or how much, and not what, in lower case."""

_GRAMMAR = (
    "i you he she it we they my your our his her their its me us a an the this that these those "
    "is are am was were be been being do does did have has had will would can could should may "
    "might must to of in on at for from with by as and or but than then there here if so what "
    "which who whom ich du er sie es wir ihr der die das den dem des ein eine einen einem einer "
    "mein meine meinen unser unsere ist sind war bin habe hat haben und oder aber in im am an "
    "auf aus bei mit nach von zu zum zur für über um je tu il elle nous vous ils elles le la "
    "les un une des du de et ou mais à au aux en dans sur pour par avec mon ma mes notre nos "
    "est sont suis ai a avons yo el los las una unos unas y o pero con por para sin mi mis "
    "nuestro nuestra es son está están soy estoy he ha hemos que qui se l d j n m s t ve re ll "
    "lo gli i e da di il per "
)
GRAMMAR = frozenset(_GRAMMAR.split())
"""Words of grammar, in lower case."""
