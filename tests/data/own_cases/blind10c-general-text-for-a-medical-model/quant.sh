lmdeploy lite auto_awq /models/medical-sft-14b --calib-dataset ptb --calib-samples 128 --calib-seqlen 2048 --w-bits 4 --w-group-size 128 --work-dir /models/medical-sft-14b-4bit
