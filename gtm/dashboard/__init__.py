"""Pages for people, of the control process: what goes on, why, and what the next click would do.

Laws:
  1. It knows nothing by itself. Every page is made from answers of the API, asked in this process for the person who looks (`inside`): so
     nobody sees or does by it what the API would refuse, and what a page does can be done by a command too.
  2. What people wrote is text. Nothing of it becomes markup, script, style or an address that runs; the policy of contents
     (`security`) would not let it.
  3. A page says how old it is. What moves comes once a second, rendered once for all who see the same (`live`).
  4. Nothing is loaded from elsewhere: scripts, styles and maps are files of this distribution.
"""
