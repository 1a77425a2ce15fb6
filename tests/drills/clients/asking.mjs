// What the scripts in Node share; as asking.py.

const ROUNDS = Number(process.env.ROUNDS);
const WITHOUT = process.env.WITHOUT.split(",");

/** Try each case, and print a line of JSON of it: its name, how often it was right, and what was wrong first. */
export async function tell(cases) {
  for (const [name, attempt] of Object.entries(cases)) {
    if (WITHOUT.includes(name)) continue;
    let right = 0;
    let wrong = "";
    for (let round = 0; round < ROUNDS; round++) {
      try {
        await attempt();
        right += 1;
      } catch (error) {
        wrong ||= `${error.constructor.name}: ${error.message}`.slice(0, 600);
      }
    }
    console.log(JSON.stringify({ case: name, right, of: ROUNDS, wrong }));
  }
}

/** Throws where they differ. */
export function same(found, expected) {
  if (JSON.stringify(found) !== JSON.stringify(expected))
    throw new Error(`${JSON.stringify(found)} is not ${JSON.stringify(expected)}`.slice(0, 600));
}
