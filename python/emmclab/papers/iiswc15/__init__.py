"""The claims of Zhou, Pan, Wang and Xie (IISWC 2015): their measures, studies and pages."""
