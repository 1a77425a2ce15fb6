"""What clients take, and the form in which they are refused: the same at edges and balancers."""

CHAT, MESSAGES, OTHER = "/v1/chat/completions", "/v1/messages", "/jobs/7"
PROBLEM, JSON = "application/problem+json", "application/json"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
ACCEPTS = [
    # path, Accept, media type, whether it is an error of Anthropic's form
    (CHAT, "", PROBLEM, False),
    (CHAT, "*/*", PROBLEM, False),
    (CHAT, "application/json", JSON, False),
    (CHAT, "Application/JSON; charset=utf-8", JSON, False),
    (CHAT, "text/event-stream", PROBLEM, False),
    (CHAT, PROBLEM, PROBLEM, False),
    (CHAT, f"application/json, {PROBLEM}", PROBLEM, False),
    (CHAT, f"application/json, {PROBLEM};q=0.5", JSON, False),
    (CHAT, f"{PROBLEM};q=0, application/json;q=0.1", JSON, False),
    (CHAT, "application/json;q=0", PROBLEM, False),
    (CHAT, BROWSER, JSON, False),
    (MESSAGES, "", JSON, True),
    (MESSAGES, "application/json", JSON, True),
    (MESSAGES, BROWSER, JSON, True),
    (MESSAGES, PROBLEM, PROBLEM, False),
    (OTHER, "", PROBLEM, False),
    (OTHER, "application/json", JSON, False),
    (OTHER, ";;q=,,q=2;application/json;q=9," * 100, PROBLEM, False),
]
