/** The page that is one file: the run is in it. */

import { complain } from "./elements.js";
import { embeddedSource } from "./embedded.js";
import { explore } from "./explore.js";

embeddedSource().then((source) => explore([source])).catch(complain);
