"""From what is seen to what is behind it: symptoms, logs, facts and a running service to causes."""

from llmdeploy.doctor.diagnose import Question, diagnose
from llmdeploy.doctor.diagnosis import Diagnosis
from llmdeploy.doctor.log import Log
from llmdeploy.doctor.symptoms import named, symptoms

__all__ = ["Diagnosis", "Log", "Question", "diagnose", "named", "symptoms"]
