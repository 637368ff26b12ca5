"""The claims of Zhou, Pan, Wang and Xie (IISWC 2015): how they are measured, and their studies and pages."""
