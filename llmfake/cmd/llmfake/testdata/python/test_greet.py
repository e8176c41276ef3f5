"""Tests of a program that calls a model. Run them with:

    llmfake replies.yaml -- python3 -m unittest
"""

import json
import os
import unittest
import urllib.request


def ask(text):
    """Asks a model and returns its message. A program would use an SDK, which reads the same variables."""
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]


def requests():
    """Returns the requests that have arrived."""
    with urllib.request.urlopen(os.environ["LLMFAKE_URL"] + "/llmfake/requests") as response:
        return json.load(response)


class TestGreet(unittest.TestCase):
    def test_greets(self):
        self.assertEqual(ask("I am Ada.")["content"], "Hello, Ada!")
        self.assertIn("user: I am Ada.", requests()[-1]["messages"])

    def test_calls_a_tool(self):
        call = ask("How is the weather?")["tool_calls"][0]["function"]
        self.assertEqual(json.loads(call["arguments"]), {"city": "Bergen"})


if __name__ == "__main__":
    unittest.main()
