/** The page of a server: the runs come over HTTP. */

import { explore } from "./explore.js";
import { remoteSources } from "./remote.js";
import { complain } from "./elements.js";

remoteSources().then(explore).catch(complain);
