"""What each principal's worst lie does to others: a world runs honestly and with a lie, and the difference is the damage.

python -m tests.drills.liars 200              # prints the table of docs/security.md for so many worlds
python -m tests.drills.liars 200 balancer     # of one arena alone
"""
