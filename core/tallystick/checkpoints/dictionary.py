"""Dictionary for compressing small pieces of state: bytes that state often begins with.

Pieces are read with the dictionary that they were written with: this one is never edited. A better
one is another.
"""

from __future__ import annotations

DICTIONARY = (
    b"\x94\xc7\xca\x05\x94\xbelangchain_core.messages.system\xadSystemMessage"
    b"\x86\xa7content\xbdYou are a helpful"
    b" assistant. "
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa6system\xa4name\xc0\xa2id\xd9$0000"
    b"0000-0000-0000-0000-000000000000\xb3model_validate_json\xc8\x01%\x05\x94\xbclangchain_core.messages.tool"
    b'\xabToolMessage\x89\xa7content\xd9K[{"id": "", "name": "", "url": "https://www.", "title": "'
    b'", "content": '
    b'""}]\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa4tool\xa4name\xa6search'
    b"\xa2id\xd9$00000000-0000-0000-0000-000000000000\xactool_call_id\xa5call_\xa8artifact\xc0\xa6status\xa7succe"
    b"ss\xb3model_validate_json\xc8\x01\n\x05\x94\xbdlangchain_core.messages.human\xacHumanMessage\x86\xa7content"
    b"\x92\x82\xa4type\xa4text\xa4text\xb9Could you please tell me "
    b"\x82\xa4type\xa9image_url\xa9image_url\x81\xa3"
    b"url\xb6data:image/png;base64,\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name"
    b"\xc0\xa2id\xd9$00000000-0000-0000-0000-000000000000\xb3model_validate_json\xc8\x02\xf2\x05\x94\xbalangchain"
    b"_core.messages.ai\xa9AIMessage\x89\xa7content\xa0\xb1additional_kwargs\x81\xa7refusal\xc0\xb1response_metad"
    b"ata\x88\xabtoken_usage\x85\xb1completion_tokens\n\xadprompt_tokens\n\xactotal_tokens\x14\xb9completion_toke"
    b"ns_details\x84\xbaaccepted_prediction_tokens\x00\xacaudio_tokens\x00\xb0reasoning_tokens\x00\xbarejected_pr"
    b"ediction_tokens\x00\xb5prompt_tokens_details\x82\xacaudio_tokens\x00\xadcached_tokens\x00\xaemodel_provider"
    b"\xa6openai\xaamodel_name\xa4gpt-\xb2system_fingerprint\xa3fp_\xa2id\xa9chatcmpl-\xacservice_tier\xa7default"
    b"\xadfinish_reason\xaatool_calls\xa8logprobs\xc0\xa4type\xa2ai\xa4name\xc0\xa2id\xd9)run--00000000-0000-0000"
    b"-0000-000000000000\xaatool_calls\x91\x84\xa4name\xa6search\xa4args\x81\xa5query\xa0\xa2id\xa5call_\xa4type"
    b"\xa9tool_call\xb2invalid_tool_calls\x90\xaeusage_metadata\x85\xacinput_tokens\x01\xadoutput_tokens\x01\xact"
    b"otal_tokens\x02\xb3input_token_details\x82\xa5audio\x00\xaacache_read\x00\xb4output_token_details\x82\xa5au"
    b"dio\x00\xa9reasoning\x00\xb3model_validate_json the and of to a in is that for it as was "
    b"with be by on not "
    b"he his but at are this have from or had an they which one you were all her she there would "
    b"their we "
    b"him been has when who will no more if out so up said what its about than into them can "
    b"only other ti"
    b"me new some could these two may first then do any like my now over such our me even most "
    b"made after "
    b"also well did many before must through years where much your way down should because long "
    b"each just "
    b"people those too little "
    b'["s","list",[0,1,1,2],[1,33,65,68,70],[2,["s","dict","f",{"messages":['
    b'"s","list",[0,1]]}],"i","null",""],"msgpack","p","branch:to:agent":["i","null",""],"'
    b'branch:to:tools":["i","null",""],"__start__":["f",{"messages":["s","list",[0,{"parents":'
    b'{},"source":"input","step":-1,"user_id":"","langgraph_version":"","run_id":"{"parents":{'
    b'},"source":"loop","step":1}\x93\xc7\xb4\x05\x94\xbdlangchain_core.messages.human\xacHumanMessage\x86'
    b"\xa7content\xaaHow can I "
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0"
    b"\xa2id\xd9$00000000-0000-0000-0000-000000000000\xb3model_validate_json\xc7\xdc\x05\x94\xbalangchain_core.me"
    b"ssages.ai\xa9AIMessage\x89\xa7content\xabI'm sorry, "
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4t"
    b"ype\xa2ai\xa4name\xc0\xa2id\xd9$00000000-0000-0000-0000-000000000000\xaatool_calls\x90\xb2invalid_tool_call"
    b"s\x90\xaeusage_metadata\xc0\xb3model_validate_json\xc7\xe1\x05\x94\xbalangchain_core.messages.ai\xa9AIMessa"
    b"ge\x89\xa7content\xa8Here is "
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa2ai\xa4name\xc0"
    b"\xa2id\xd9,lc_run--00000000-0000-0000-0000-000000000000\xaatool_calls\x90\xb2invalid_tool_calls\x90\xaeusag"
    b"e_metadata\xc0\xb3model_validate_json\x85\xa1v\x04\xa2ts\xd9 "
    b"2026-01-01T00:00:00.000000+00:00\xb0channel_ve"
    b"rsions\x85\xa9__start__\x01\xa8messages\x02\xafbranch:to:agent\x03\xafbranch:to:tools\x03\xafbranch:to:mode"
    b"l\x03\xadversions_seen\x85\xa9__input__\x80\xa9__start__\x81\xa9__start__\x01\xa5agent\x81\xafbranch:to:age"
    b"nt\x02\xa5tools\x81\xafbranch:to:tools\x03\xa5model\x81\xafbranch:to:model\x02\xb0updated_channels\x91\xa9_"
    b"_start__\x85\xa1v\x04\xa2ts\xd9 "
    b"2026-01-01T00:00:00.000000+00:00\xb0channel_versions\x83\xa9__start__\xcd"
    b"\x01,\xa8messages\xcd\x01,\xafbranch:to:model\xcd\x01,\xadversions_seen\x83\xa9__input__\x80\xa9__start__"
    b"\x81\xa9__start__\xcd\x01,\xa5model\x81\xafbranch:to:model\xcd\x01,\xb0updated_channels\x92\xafbranch:to:mo"
    b"del\xa8messages\x92\xc7\xb4\x05\x94\xbdlangchain_core.messages.human\xacHumanMessage"
    b"\x86\xa7content\xaaHow "
    b"can I \xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0"
    b"\xa2id\xd9$00000000-00"
    b"00-0000-0000-000000000000\xb3model_validate_json\xc7\xdc\x05\x94\xbalangchain_core.messages.ai\xa9AIMessage"
    b"\x89\xa7content\xabI'm sorry, "
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa2ai\xa4name\xc0"
    b"\xa2id\xd9$00000000-0000-0000-0000-000000000000\xaatool_calls\x90\xb2invalid_tool_calls\x90\xaeusage_metada"
    b'ta\xc0\xb3model_validate_json["f",{"messages":["s","list",[0,{"messages":["s","list",[0,1],[1'
    b","
)
