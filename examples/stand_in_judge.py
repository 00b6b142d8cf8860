"""A stand-in for a judge: an OpenAI-compatible endpoint that grades by whether the reference is in the answer."""

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Judge(BaseHTTPRequestHandler):
    """Answers ``POST /v1/chat/completions`` with a grade from 0 to 10."""

    def do_POST(self) -> None:
        """Reads reference and answer out of the instruction of `ngrpo.rewards.llm_judge.PROMPT`."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = request["messages"][-1]["content"]
        found = re.search(r"Reference answer:\n(.*?)\n\nAnswer to grade:\n(.*)\n\nHow good", asked, flags=re.DOTALL)
        grade = 10 if found and found[1] in re.findall(r"-?\d+", found[2]) else 2
        self.reply({"choices": [{"message": {"role": "assistant", "content": f"Score: {grade}"}}]})

    def reply(self, content: object) -> None:
        """Sends an object."""
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing of each request."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Judge).serve_forever()
