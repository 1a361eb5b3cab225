import sys

from neurosql.cli import main

sys.exit(main())
