import pytest
import transformers

from hetspec.text.chat_template import ChatTemplate, Message
from tests.vocabularies import byte_level

CHATML_WITH_SYSTEM = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system\nYou are a helpful AI assistant<|im_end|>\n' }}{% endif %}\
{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

LLAMA_3 = """{% set loop_messages = messages %}{% for message in loop_messages %}\
{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim \
+ '<|eot_id|>' %}\
{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message["role"] == "user" %}
        {%- if loop.first and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- else %}
        {{- " " + message["content"] + eos_token}}
    {%- endif %}
{%- endfor %}
"""

# What newer templates lean on: namespaces, loop controls, dates, tojson without escapes, training marks, tools.
NEWER = """{%- set ns = namespace(last=-1) %}
{%- for message in messages %}
    {%- if message.role == "user" %}{%- set ns.last = loop.index0 %}{%- continue %}{%- endif %}
    {%- if loop.index0 > 3 %}{%- break %}{%- endif %}
{%- endfor %}
{%- if tools is not none and tools is defined %}TOOLS{%- endif %}
Today: {{ strftime_now("%Y") }}; last {{ ns.last }}; {{ messages[0] | tojson }} {{ messages | tojson(indent=2) }}
    {% generation %}
    body {{ dict(a=1).a }} {{ messages[0].content.split(" ") | join("_") }}
    {% endgeneration %}
{% if add_generation_prompt %}go{% endif %}
"""

TEMPLATES = {"chatml": CHATML_WITH_SYSTEM, "llama_3": LLAMA_3, "mistral": MISTRAL, "newer": NEWER}

CHATS: list[list[Message]] = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be <brief> & 'kind'."}, {"role": "user", "content": "  naïve 😀?\n"}],
    [
        {"role": "user", "content": "1 + 1"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "{{ messages }} {% raw %}"},
    ],
]


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("name", list(TEMPLATES))
def test_renders_as_transformers_does(name: str, chat: list[Message]) -> None:
    vocabulary = byte_level("llama-bpe")
    special = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
    reference = transformers.PreTrainedTokenizerFast(
        tokenizer_object=vocabulary.tokenizer, chat_template=TEMPLATES[name], **special
    )
    want = reference.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert ChatTemplate(TEMPLATES[name], special).render(chat) == want


def refusal(source: str, messages: list[Message]) -> str:
    with pytest.raises(ValueError, match="messages: ") as caught:
        ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}).render(messages)
    return str(caught.value)


def test_what_a_template_refuses_is_one_line_that_names_messages() -> None:
    chat: list[Message] = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    assert refusal(MISTRAL, chat) == (
        "messages: refused by the model's chat template: "
        "conversation roles must alternate user/assistant/user/assistant/..."
    )


@pytest.mark.parametrize(
    "message", [{"role": "user"}, {"role": "user", "content": None}, {"role": "user", "content": ["a"]}]
)
def test_a_message_the_template_cannot_read_is_one_line_too(message: Message) -> None:
    text = refusal(LLAMA_3.replace(" | trim", ""), [message])
    assert text.startswith("messages: ")
    assert "\n" not in text


@pytest.mark.parametrize(
    "attack",
    ["{{ messages.__class__.__mro__ }}", "{{ raise_exception.__globals__['json'] }}", "{{ messages.append(1) }}"],
)
def test_a_template_cannot_leave_the_sandbox(attack: str) -> None:
    assert refusal(attack, [{"role": "user", "content": "x"}]).startswith("messages: ")


def test_a_template_that_is_no_jinja_is_refused_with_its_line() -> None:
    with pytest.raises(ValueError, match=r"chat_template: line 2: "):
        ChatTemplate("ok\n{% if %}", {})
