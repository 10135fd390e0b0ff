"""The rules in Python, without a server."""

from __future__ import annotations

from noria import LLM, Rule, SamplingParams

PROMPT = "Wheels turn and wheels turn and wheels turn and"


def main() -> None:
    with LLM() as llm:
        plain = SamplingParams(temperature=0, max_tokens=32)
        ruled = SamplingParams(temperature=0, max_tokens=32, rule=Rule("no-repeat-ngram", {"n": 3}))
        free, held = llm.generate([PROMPT, PROMPT], [plain, ruled], show_progress=False)
        print("without a rule: ", free.outputs[0].text.strip())
        print("no-repeat-ngram:", held.outputs[0].text.strip())
        ids = held.outputs[0].token_ids
        trigrams = [tuple(ids[i : i + 3]) for i in range(len(ids) - 2)]
        assert len(set(trigrams)) == len(trigrams)


main()
