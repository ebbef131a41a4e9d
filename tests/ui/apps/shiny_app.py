import os

import hloscope as hs
from hloscope.show.notebook.widget import widget
from shiny.express import ui
from shinywidgets import render_widget

capture = hs.read(os.environ["HLOSCOPE_APP_FILE"])
ui.h1("step")


@render_widget(height="640px")  # by default only 400 pixels show
def explorer():
    return widget(capture, height=640)
