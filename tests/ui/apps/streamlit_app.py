import os

import hloscope as hs
import streamlit as st

capture = hs.read(os.environ["HLOSCOPE_APP_FILE"])
st.components.v1.html(capture.html(), height=640)
