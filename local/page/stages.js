// The stages of a job, as they are configured.
import { config } from "./api.js";

/** How many colours `style.css` has for them. */
const COLOURS = 6;
/** The entry of all stages without one of their own. */
const OTHERS = "*";

/** The class of a stage's colour, by its place in the table. */
export function colour(stage) {
  const place = config.stages.findIndex((entry) => entry.stage === stage && stage !== OTHERS);
  return place < 0 ? "other" : `stage-${place % COLOURS}`;
}

/** The stages that set the state, in the order in which the state goes through them. */
export const steps = () => config.stages
  .filter(({ stage, state }) => state && stage !== OTHERS)
  .sort((a, b) => a.first - b.first)
  .map(({ stage }) => stage);
