import os

import hloscope as hs
import panel as pn

pn.extension()
capture = hs.read(os.environ["HLOSCOPE_APP_FILE"])
pn.Column("# step", pn.panel(capture)).servable()
