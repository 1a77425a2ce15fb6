"""A recorded corpus of questions, and hashes of what gtm answered to them when it was recorded.

A change that only moves code must leave every answer as it was, byte for byte. `questions` draws the questions and
knows nothing of gtm, so that they stay the same whatever moves; `answers` asks them; `answers.json` holds the hashes.

  python -m tests.corpus                 ask all 100,000 and compare (two minutes)
  python -m tests.corpus --dump FOLDER   write questions and answers in full, a file a scene: made in two checkouts,
                                         `diff -r` shows which answers differ
  python -m tests.corpus --record        record anew, after a change that is meant to change answers: say which in
                                         CHANGELOG.md
"""
