"""Other systems' zones and steering → a policy to go on from. Pure: text in, documents and notes out.

Law: what the source does not say is left out, so that `gtm check` asks for it; nothing is guessed, and nothing of the
source is dropped without a note.
"""
