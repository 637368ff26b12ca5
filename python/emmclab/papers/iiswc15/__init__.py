"""The paper of Zhou, Pan, Wang and Xie (IISWC 2015): its studies and pages, and measures of its claims."""
