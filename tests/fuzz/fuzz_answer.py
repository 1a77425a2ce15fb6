"""Look for packets that break the rules of `tests.fuzz.check`, guided by coverage: `make fuzz`.

Arguments are libFuzzer's: `python -m tests.fuzz.fuzz_answer -max_total_time=600 DIRECTORY tests/fuzz/corpus` keeps what
it finds in DIRECTORY; with `-merge=1 tests/fuzz/corpus DIRECTORY` the corpus takes in what covers something new.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["gtm.dns", "dns"]):
    from tests.fuzz.check import check

atheris.Setup(sys.argv, check)
atheris.Fuzz()
